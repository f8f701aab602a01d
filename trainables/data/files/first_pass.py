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
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image

from trainables.data.cache import JOURNAL
from trainables.data.decode import decode_image
from trainables.data.files.index import Box
from trainables.data.files.lists import name_unreadable_file
from trainables.machine.processes import count_cores

IN_FLIGHT = 4  # images a core: bounds memory, 36 MB each of a camera, while the threads stay busy
SECONDS = 2.0  # between two notes in the journal: what is lost at most
T = TypeVar("T")


class Picture(NamedTuple):
    """path: the file, or with `content` what to call it. box: the part that is kept."""

    path: Path
    content: bytes | None = None
    box: Box | None = None

    def read_bytes(self) -> bytes:
        """Return the file's bytes; a ConfigError names one that cannot be read."""
        if self.content is not None:
            return self.content
        with name_unreadable_file(self.path, "a readable image", "Check its permissions"):
            return self.path.read_bytes()


Pictures = Callable[[int], Iterable[Picture]]  # those from a row on, in order


def decode_picture(picture: Picture, short: int | None) -> np.ndarray:
    """Return [H, W, 3] uint8, of short side `short`; None: as it lies."""
    return decode_image(picture.path, short, content=picture.content, box=picture.box)


def map_ahead(work: Callable[[Picture], T], pictures: Iterable[Picture]) -> Iterator[T]:
    """Do `work` on each in threads, in order, a bounded number of them ahead of the reader."""
    threads = count_cores()
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


@contextmanager
def silence_size_warning() -> Iterator[None]:
    """Silence Pillow's warning of large images: the limits and their message are `decode`'s."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


class GrowingFile:
    """The file `name`, with its journal, in a folder that goes on.

    rows: the length of the file after each row that is in it, and the row's numbers.
    """

    def __init__(self, folder: Path, name: str, columns: int) -> None:
        path, journal = folder / name, folder / JOURNAL
        path.touch()
        journal.touch()
        numbers = np.fromfile(journal, np.int64)
        rows = numbers[: len(numbers) // (columns + 1) * (columns + 1)].reshape(-1, columns + 1)
        is_intact = (np.diff(rows[:, 0], prepend=0) >= 0) & (rows[:, 0] <= path.stat().st_size)
        self.rows: list[list[int]] = rows[: int(np.argmin([*is_intact, False]))].tolist()
        self.size = self.rows[-1][0] if self.rows else 0
        os.truncate(path, self.size)
        os.truncate(journal, 8 * (columns + 1) * len(self.rows))
        self._noted, self._last = len(self.rows), time.monotonic()
        self._file, self._journal = path.open("ab"), journal.open("ab")

    def append_row(self, content: bytes | memoryview, *numbers: int) -> None:
        """Append a row: its bytes, and the numbers that its table holds."""
        # Written, not mapped: a full disk is then an error here, not a SIGBUS later.
        self._file.write(content)
        self.size += memoryview(content).nbytes
        self.rows.append([self.size, *numbers])
        if time.monotonic() - self._last >= SECONDS:
            self._note()

    def _note(self) -> None:
        """Write down the rows since the last note, after their bytes are on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._journal.write(np.array(self.rows[self._noted :], np.int64).tobytes())
        self._journal.flush()
        self._noted, self._last = len(self.rows), time.monotonic()

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file, self._journal:
            self._note()
