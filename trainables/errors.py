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
    """Bad input, described by its place and one sentence.

    Args:
        path: where it is: a dotted field (`method.alpha`), an option or a file name.
        found: one full sentence with the value and what to do ("--storage needs a sweep: leave
            --plan out"). With `expected`, only what was there.
        expected: what would have been right. New code gives a sentence instead.
        remedy: what to do about it, where another place shows it apart.

    `message` is the sentence without the path.
    """

    def __init__(self, path: str, found: str, expected: str = "", remedy: str = "") -> None:
        self.path, self.found, self.expected, self.remedy = path, found, expected, remedy
        self.message = found if len(found) <= MOST else f"{found[:MOST]}…"
        if expected:
            self.message = f"found {self.message}; expected {expected}"
        if remedy:
            self.message += f". {remedy}"
        super().__init__(f"{path}: {self.message}")

    def move_to(self, path: str) -> ConfigError:
        """Return the same fault at another place."""
        return ConfigError(path, self.found, self.expected, self.remedy)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, str, str, str]]:
        # Exceptions cross process borders by pickle; the default would pass the message alone.
        return type(self), (self.path, self.found, self.expected, self.remedy)


class TrialFailure(RuntimeError):
    """A deterministic failure of one trial; the message names the component at fault."""
