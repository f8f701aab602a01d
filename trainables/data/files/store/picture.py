"""One image file, wherever its bytes lie, and many of them in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from trainables.data.decode import decoded
from trainables.data.files.index import Box
from trainables.errors import ConfigError
from trainables.machine.processes import cores

IN_FLIGHT = 4  # images a core: bounds memory, 36 MB each of a camera, while the threads stay busy
T = TypeVar("T")


class Picture(NamedTuple):
    """path: the file, or with `content` what to call it. box: the part that is kept."""

    path: Path
    content: bytes | None = None
    box: Box | None = None

    def read(self) -> bytes:
        """The file's bytes.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.content is not None:
            return self.content
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise ConfigError(
                str(self.path), f"{error.strerror}", "a readable image", "Check its permissions"
            ) from error


def picture_pixels(picture: Picture, short: int | None) -> np.ndarray:
    """[H, W, 3] uint8, of short side `short`; None: as it lies."""
    return decoded(picture.path, short, content=picture.content, box=picture.box)


def ahead(work: Callable[[Picture], T], pictures: Iterable[Picture]) -> Iterator[T]:
    """`work` on each in threads, in order, a bounded number of them ahead of the reader."""
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
