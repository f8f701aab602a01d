"""Define what stops a trial, a command or a report.

`ConfigError`  the input is wrong: reported before anything starts, exit code 2.
`TrialFailure` the trial ran and cannot succeed (its loss is not finite, for example): recorded in
               the ledger and not retried, because it would fail again.
`ReportError`  a report cannot be made; the trials are not concerned.

The engine retries all other failures, which the machine causes: a killed process, a lost node, a
full disk.
"""

# how the reason of a failure begins if the trial ran out of memory
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")
MAX_LENGTH = 1000  # of a message, in characters
ENDS = (".", "!", "?")  # of a sentence


class ConfigError(ValueError):
    """Invalid input, described by its location, the fault and the remedy.

    The message joins the fault and the remedy: "5 is not even. Give an even number."

    Args:
        path: where the input is: a dotted field (`method.alpha`), an option or a file name.
        fault: what is wrong, with the value: a sentence without its period ("5 is not even").
        remedy: what the user can do ("Give an even number"); empty if the fault says it, as a
            library's text or a joined message may.
    """

    def __init__(self, path: str, fault: str, remedy: str = "") -> None:
        self.path, self.fault, self.remedy = path, fault, remedy
        if len(self.message) > MAX_LENGTH:  # the fault has the long value
            self.remedy = _shorten_text(remedy, MAX_LENGTH // 2)
            self.fault = _shorten_text(fault, MAX_LENGTH - len(self.remedy))
        super().__init__(f"{path}: {self.message}")

    @property
    def message(self) -> str:
        """The fault and the remedy, as one text."""
        if not self.remedy:
            return self.fault
        sentences = (self.fault, self.remedy)
        return " ".join(text if text.endswith(ENDS) else f"{text}." for text in sentences)

    def move_to(self, path: str) -> "ConfigError":
        """Return the same error for another location."""
        return ConfigError(path, self.fault, self.remedy)

    def __reduce__(self) -> "tuple[type[ConfigError], tuple[str, str, str]]":
        # pickle would pass only the joined text to `__init__`
        return type(self), (self.path, self.fault, self.remedy)


def _shorten_text(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


class TrialFailure(RuntimeError):
    """A deterministic failure of one trial; the message names the component at fault."""


class ReportError(ValueError):
    """A report cannot be made; the message is one sentence with the remedy."""


class StoreUnavailable(ReportError):
    """MLflow does not answer."""
