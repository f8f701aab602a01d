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
    r"(?<!by)(?<!com)pass(word|wd|phrase)?$|(?<!^)(?<!^old)pwd|token$|secret|credential"
    r"|(access|api|private)_?key|_key$|_auth$|jwt$|connection_?string"
)
_USER = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]+(?=@)")


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether an environment variable such as `$API_KEY` holds a secret, and no path."""
    return _SECRET.search(name.lower()) is not None and not Path(value).is_absolute()


def redact_secrets(text: str) -> str:
    """Return `text` with `***` for each secret of the environment and each password in a URL."""
    for name, value in os.environ.items():
        if is_secret_variable(name, value) and len(value) >= SHORTEST:
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
