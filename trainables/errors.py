"""The two kinds of failure a trial can have.

`ConfigError`  the input is wrong: reported before anything starts, exit code 2.
`TrialFailure` the trial ran and cannot succeed (a non-finite loss, say): a durable
               fact in the ledger, not retried, because it would fail again.

Anything the machine does to a trial (a killed process, a lost node, a full disk) is
neither: the engine retries it.
"""

from __future__ import annotations

MOST = 1000  # characters of a message


class ConfigError(ValueError):
    """Bad input, described by its place and one sentence.

    Args:
        path: where the input is: a dotted field (`method.alpha`), an option or a file name.
        message: one full sentence with the value and the remedy ("--pilot needs --plan.").
    """

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message if len(message) <= MOST else f"{message[:MOST]}…"
        super().__init__(f"{path}: {self.message}")

    def move_to(self, path: str) -> ConfigError:
        """Return the same fault at another place."""
        return ConfigError(path, self.message)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str]]:
        # Exceptions cross process borders by pickle; the default would pass one argument.
        return type(self), (self.path, self.message)


class TrialFailure(RuntimeError):
    """A deterministic failure of one trial; the message names the component at fault."""
