"""Print to the terminal, with control characters escaped, and quote the command typed there."""

import logging
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.words.texts import escape_control_characters

LONGEST_LINE = 2000  # characters quoted from a file
PROGRESS = logging.getLogger("trainables.progress")  # for a worker's log and a waiting command
FIRST, LEAST, MOST = 3.0, 5.0, 60.0  # seconds before the first line, and between two


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
    """Print the lines of `ImageProgress` on stderr in the `with` block."""
    handler, level = _PrintHandler(), PROGRESS.level
    PROGRESS.addHandler(handler)
    PROGRESS.setLevel(logging.INFO)
    try:
        yield
    finally:
        PROGRESS.removeHandler(handler)
        PROGRESS.setLevel(level)


class ImageProgress:
    """Log the progress of a task on `total` images.

    The pause between lines is a twentieth of the time so far, within limits.
    """

    def __init__(self, task: str, total: int) -> None:
        self.task, self.total = task, total
        self.begun = time.monotonic()
        self.due = self.begun + FIRST

    def update(self, done: int) -> None:
        """Log the images done, their rate and the time left, if a line is due."""
        now = time.monotonic()
        if now < self.due:
            return
        seconds = now - self.begun
        self.due = now + min(MOST, max(LEAST, seconds / 20))
        if rate := done / seconds:
            counts = f"{done:,} of {self.total:,} images, {rate:,.0f} a second"
            PROGRESS.info("%s: %s, %.0f s left", self.task, counts, (self.total - done) / rate)


def format_command_line() -> str:
    """Return the `ablate` command of this process as a user types it; "" in other programs."""
    program = Path(sys.argv[0])
    name = program.name if program.name == "ablate" else f"{program.parent.name}/{program.name}"
    commands = {
        "ablate": ["ablate"],
        "ablate/run.py": ["python", "-m", "ablate.run"],
        "ablate/__main__.py": ["python", "-m", "ablate"],
    }
    return shlex.join([*commands[name], *sys.argv[1:]]) if name in commands else ""
