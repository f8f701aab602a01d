"""Define the two kinds of failure that a trial can have.

`ConfigError`  the input is wrong: reported before anything starts, exit code 2.
`TrialFailure` the trial ran and cannot succeed (its loss is not finite, for example): recorded in
               the ledger and not retried, because it would fail again.

The engine retries all other failures, which the machine causes: a killed process, a lost node, a
full disk.
"""

MAX_LENGTH = 1000  # of a message, in characters


class ConfigError(ValueError):
    """Invalid input, described by its location, the fault and the remedy.

    Args:
        path: where the input is: a dotted field (`method.alpha`), an option or a file name.
        message: the fault with the value, and the remedy ("5 is not even. Give an even number.").
    """

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        is_short = len(message) <= MAX_LENGTH
        self.message = message if is_short else f"{message[:MAX_LENGTH]}…"
        super().__init__(f"{path}: {self.message}")

    def move_to(self, path: str) -> "ConfigError":
        """Return the same error for another location."""
        return ConfigError(path, self.message)

    def __reduce__(self) -> "tuple[type[ConfigError], tuple[str, str]]":
        # pickle would pass only the joined text to `__init__`
        return type(self), (self.path, self.message)


class TrialFailure(RuntimeError):
    """A deterministic failure of one trial; the message names the component at fault."""
