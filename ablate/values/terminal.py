"""Print to the terminal, with control characters escaped, since names come from files."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trainables.machine.progress import LOG as PROGRESS
from trainables.machine.texts import escape_control_characters

LONGEST_LINE = 2000  # characters quoted from a file


def print_text(text: object, *, error: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Print to standard output or standard error, with control characters escaped."""
    stream = sys.stderr if error else sys.stdout
    print(escape_control_characters(str(text)), file=stream, end=end, flush=flush)


def to_one_line(text: object) -> str:
    """Return untrusted text as one line of limited length."""
    words = " ".join(str(text).split())
    return words if len(words) <= LONGEST_LINE else f"{words[:LONGEST_LINE]}…"


def make_streams_tolerant() -> None:
    """Make terminals that lack a character, such as `×`, show its escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class _PrintHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_text(record.getMessage(), error=True, flush=True)


@contextmanager
def show_progress() -> Iterator[None]:
    """Print progress messages (`trainables.machine.progress`) on stderr in the `with` block."""
    handler, level = _PrintHandler(), PROGRESS.level
    PROGRESS.addHandler(handler)
    PROGRESS.setLevel(logging.INFO)
    try:
        yield
    finally:
        PROGRESS.removeHandler(handler)
        PROGRESS.setLevel(level)
