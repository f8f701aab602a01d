"""A full disk: no error of the program, but of the machine, said in one line wherever it is met."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.ledger.schema import LedgerError

CODES = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk, or a used-up quota, is behind an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in CODES:
            return True
        error = error.__cause__ or error.__context__
    return False


def tells_of_it(text: str) -> bool:
    """Whether an error of another process, of which only the words are left, is that."""
    return any(f"[errno {code}]" in text.lower() for code in CODES)


def full(path: Path | str) -> LedgerError:
    return LedgerError(
        f"{path}: found no space left on its disk; expected room to write. "
        "Free some space and start again: everything recorded is kept"
    )


@contextmanager
def room(path: Path) -> Iterator[None]:
    """Raises LedgerError for what a full disk makes of writing below `path`."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full(error.filename or path) from error
        raise
