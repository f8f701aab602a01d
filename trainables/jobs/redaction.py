"""Redact secrets in texts of errors and logs.

Libraries write addresses and headers into their messages, and a trial's last error stays in its
log, the ledger, tags and reports.
"""

import logging
import os
import re
import traceback
from pathlib import Path

# how the reason of a failure event begins if the trial ran out of memory
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")
HIDDEN = "***"
SHORTEST = 8  # characters; a shorter value may be part of any word
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|(?<!^)(?<!^old)pwd|token$|secret|(access|api|private)_?key|credential"
)
_USER = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+(?=@)")


def redact_secrets(text: str) -> str:
    """Return `text` with `***` for each secret of the environment and each password in a URL.

    A variable such as `$API_KEY` holds a secret, unless its value is an absolute path or short.
    """
    for name, value in os.environ.items():
        is_secret = _SECRET.search(name.lower()) and not Path(value).is_absolute()
        if is_secret and len(value) >= SHORTEST:
            text = text.replace(value, HIDDEN)
    # hide also the password in `https://user:password@host`
    return _USER.sub(rf"\1:{HIDDEN}", text)


class HidingFormatter(logging.Formatter):
    """Redact secrets in log records and their tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return redact_secrets(super().format(record))


def build_failure_event(error: BaseException) -> dict[str, str]:
    """Return the last event of a job that failed with `error`."""
    reason = redact_secrets(" ".join(f"{type(error).__name__}: {error}".split()))
    trace = redact_secrets("".join(traceback.format_exception(error)))
    return {"event": "failed", "reason": reason, "traceback": trace}
