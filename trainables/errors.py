"""The two kinds of failure a trial can have.

`ConfigError`  the input is wrong: reported before anything starts, exit code 2.
`TrialFailure` the trial ran and cannot succeed (a non-finite loss, say): a durable
               fact in the ledger, not retried, because it would fail again.

Anything the machine does to a trial (a killed process, a lost node, a full disk) is
neither: the engine retries it.
"""

from __future__ import annotations

MOST = 1000  # characters of a value that a message quotes


class ConfigError(ValueError):
    """Bad input, said in one line: where, what was found, what was expected, the remedy.

    Args:
        path: where it is: a dotted field (`method.alpha`) or a file name.
        found: what was there.
        expected: what would have been right.
        remedy: what to do about it.
    """

    def __init__(self, path: str, found: str, expected: str, remedy: str = "") -> None:
        self.path, self.found, self.expected, self.remedy = path, found, expected, remedy
        tail = f". {remedy}" if remedy else ""
        shown = found if len(found) <= MOST else f"{found[:MOST]}…"
        super().__init__(f"{path}: found {shown}; expected {expected}{tail}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str, str, str]]:
        # Exceptions cross process borders by pickle; the default would pass the message alone.
        return type(self), (self.path, self.found, self.expected, self.remedy)


class TrialFailure(RuntimeError):
    """A deterministic failure of one trial; the message names the component at fault."""
