"""The first pass over a data set's image files: pictures read in threads, a file that grows.

The file grows row by row, and goes on where a killed process left it. Beside it lies a journal of
int64 rows: the length of the file after a row, and the row's numbers. Every few seconds what was
added is flushed to disk, and only then noted. Whoever goes on believes whole rows of the journal
that the file is long enough for, cuts the rest off, and so ends in the same bytes however often the
pass was interrupted.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image

from trainables.data.cache import JOURNAL
from trainables.data.decode import decoded
from trainables.data.files.index import Box
from trainables.data.files.lists import reading
from trainables.machine.processes import cores

IN_FLIGHT = 4  # images a core: bounds memory, 36 MB each of a camera, while the threads stay busy
SECONDS = 2.0  # between two notes in the journal: what is lost at most
T = TypeVar("T")


class Picture(NamedTuple):
    """path: the file, or with `content` what to call it. box: the part that is kept."""

    path: Path
    content: bytes | None = None
    box: Box | None = None

    def read(self) -> bytes:
        """Return the file's bytes; a ConfigError names one that cannot be read."""
        if self.content is not None:
            return self.content
        with reading(self.path, "a readable image", "Check its permissions"):
            return self.path.read_bytes()


Pictures = Callable[[int], Iterable[Picture]]  # those from a row on, in order


def picture_pixels(picture: Picture, short: int | None) -> np.ndarray:
    """Return [H, W, 3] uint8, of short side `short`; None: as it lies."""
    return decoded(picture.path, short, content=picture.content, box=picture.box)


def ahead(work: Callable[[Picture], T], pictures: Iterable[Picture]) -> Iterator[T]:
    """Do `work` on each in threads, in order, a bounded number of them ahead of the reader."""
    threads = cores()
    with ThreadPoolExecutor(threads) as pool:
        rest = iter(pictures)
        waiting = deque(pool.submit(work, each) for each in islice(rest, IN_FLIGHT * threads))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(work, picture) for picture in islice(rest, 1))
        finally:
            for future in waiting:
                future.cancel()


def sample_pictures(pictures: Pictures, count: int, most: int) -> tuple[int, Iterator[Picture]]:
    """Return how many pictures of `count` are taken, at most `most`, and these.

    They lie evenly over all rows; of a table with the images in it they are the first.
    """
    rows = np.unique(np.linspace(0, count - 1, min(most, count)).astype(int)).tolist()
    inside = any(picture.content is not None for picture in islice(pictures(0), 1))
    if inside or len(rows) == count:
        return len(rows), islice(iter(pictures(0)), len(rows))
    return len(rows), (picture for row in rows for picture in islice(pictures(row), 1))


@contextmanager
def own_size_limits() -> Iterator[None]:
    """Silence Pillow's warning of large images: the limits and their message are `decode`'s."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


class GrowingFile:
    """The file `name` in a folder that goes on.

    rows: the numbers of each row that is in it, as they were given, behind the length of the file.
    """

    def __init__(self, folder: Path, name: str, columns: int) -> None:
        path, journal = folder / name, folder / JOURNAL
        path.touch()
        journal.touch()
        self._row_bytes = 8 * (columns + 1)
        self.rows = _read_journal(journal, path.stat().st_size, columns + 1)
        self.size = self.rows[-1][0] if self.rows else 0
        os.truncate(path, self.size)
        os.truncate(journal, self._row_bytes * len(self.rows))
        self._noted, self._last = len(self.rows), time.monotonic()
        self._file = path.open("ab")
        self._lines = journal.open("r+b", buffering=0)

    def add(self, content: bytes | memoryview, *numbers: int) -> None:
        """Append a row: its bytes, and the numbers that its table holds."""
        # Written, not mapped: a full disk is then an error here, not a SIGBUS later.
        self._file.write(content)
        self.size += memoryview(content).nbytes
        self.rows.append([self.size, *numbers])
        if time.monotonic() - self._last >= SECONDS:
            self.note()

    def note(self) -> None:
        """Write down the rows since the last note, after their bytes are on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        rows = np.array(self.rows[self._noted :], np.int64).tobytes()
        os.pwrite(self._lines.fileno(), rows, self._row_bytes * self._noted)
        self._noted, self._last = len(self.rows), time.monotonic()

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: Any) -> None:
        """Note what is there, also where Ctrl-C came; a row that was torn by it is not among it."""
        try:
            if not isinstance(error, Exception):
                self.note()
        finally:
            self._file.close()
            self._lines.close()


def _read_journal(journal: Path, size: int, columns: int) -> list[list[int]]:
    """Return the whole rows, in rising order, for which a file of `size` bytes is long enough."""
    content = np.fromfile(journal, np.int64)
    rows = content[: len(content) // columns * columns].reshape(-1, columns)
    good = (np.diff(rows[:, 0], prepend=0) >= 0) & (rows[:, 0] <= size)
    intact: list[list[int]] = rows[: int(np.argmin([*good, False]))].tolist()
    return intact
