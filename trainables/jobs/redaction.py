"""Texts of errors and logs without the secrets that this process was given.

Libraries put addresses and headers into their messages, and a trial's last words are kept for
ever: in its log, in the ledger, as tags, in reports. What the environment calls a password, a token
or a key is taken out of them, and so is what stands before the @ of an address.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from pathlib import Path

HIDDEN = "***"
SHORTEST = 8  # letters: a shorter value may be part of any word
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|(?<!^)(?<!^old)pwd|token$|secret|(access|api|private)_?key|credential"
)
_USER = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+(?=@)")


def redact_secrets(text: str) -> str:
    """Return `text` with every secret of this process's environment as `***`. Where a file lies
    that holds one (`$GOOGLE_APPLICATION_CREDENTIALS`) is none."""
    for name, value in os.environ.items():
        if (
            len(value) >= SHORTEST
            and _SECRET.search(name.lower())
            and not Path(value).is_absolute()
        ):
            text = text.replace(value, HIDDEN)
    return _USER.sub(rf"\1:{HIDDEN}", text)


class HidingFormatter(logging.Formatter):
    """Of a log file: what is hidden stays so in tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_secrets(super().format(record))


def build_failure_event(error: BaseException) -> dict[str, str]:
    """Return the last event of a job that failed."""
    reason = redact_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    trace = redact_secrets("".join(traceback.format_exception(error)))
    return {"event": "failed", "reason": reason, "traceback": trace}
