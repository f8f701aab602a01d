"""Pictures decoded once into one memory-mapped run of bytes with a table of sizes.

The short side is brought to round(image_size·256/224), or as `data.eval_resize` or
`data.stored_side` say; evaluation then takes the centre `image_size` square as it lies, as the
papers' Resize(256) + CenterCrop(224) does, unless images are kept larger than it wants them.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainables.data.cache import published
from trainables.data.decode import decoded
from trainables.data.files.index import Box, Index
from trainables.data.images import Images, mapped_bytes
from trainables.machine.processes import cores

if TYPE_CHECKING:
    from trainables.config.sections import DataConfig

LOG = logging.getLogger(__name__)
AHEAD = 256  # images in flight: bounds memory while the threads stay busy
T = TypeVar("T")


class Picture(NamedTuple):
    """path: the file, or with `content` what to call it. box: the part that is kept."""

    path: Path
    content: bytes | None = None
    box: Box | None = None


def stored(
    folder: Path,
    index: Index,
    pictures: Callable[[], Iterable[Picture]],
    config: DataConfig,
) -> tuple[Images, Tensor, tuple[str, ...]]:
    """Images, labels and class names, from a folder of the cache; decoded there if it is not.

    Args:
        folder: named after the content of the data; the short side is added to its name.
        pictures: of the rows of `index`, in order.
    """
    short = config.kept
    folder = published(
        folder.with_name(f"{folder.name}-{short}"),
        lambda fresh: _decode(index, pictures(), short, fresh),
    )
    table = torch.from_numpy(np.load(folder / "table.npy", allow_pickle=False))
    images = Images(
        flat=mapped_bytes(folder / "pixels.bin"),
        offsets=table[:, 0].contiguous(),
        heights=table[:, 1].contiguous(),
        widths=table[:, 2].contiguous(),
        channels=3,
        frame=config.image_size / config.evaluated,
    )
    classes = tuple(json.loads((folder / "classes.json").read_text()))
    return images, table[:, 3].contiguous(), classes


def _decode(index: Index, pictures: Iterable[Picture], short: int, folder: Path) -> None:
    LOG.info("decoding %d images of %s", len(index), index.base)
    table = np.zeros((len(index), 4), np.int64)
    offset = 0
    # The limits and their message are `decode`'s; Pillow's warning would be one more line.
    with (folder / "pixels.bin").open("wb") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        for row, pixels in enumerate(ahead(partial(picture_pixels, short=short), pictures)):
            height, width = pixels.shape[:2]
            table[row] = offset, height, width, index.labels[row]
            # Written, not mapped: a full disk is then an error here, not a SIGBUS later.
            out.write(np.ascontiguousarray(pixels).data)
            offset += pixels.size
            if (row + 1) % 5000 == 0:
                LOG.info("decoded %d of %d images", row + 1, len(index))
    np.save(folder / "table.npy", table, allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(index.classes))


def picture_pixels(picture: Picture, short: int) -> np.ndarray:
    """[H, W, 3] uint8, of short side `short`."""
    return decoded(picture.path, short, content=picture.content, box=picture.box)


def ahead(work: Callable[[Picture], T], pictures: Iterable[Picture]) -> Iterator[T]:
    """`work` on each in threads, in order, a bounded number of them ahead of the reader."""
    with ThreadPoolExecutor(cores()) as pool:
        rest = iter(pictures)
        waiting = deque(pool.submit(work, picture) for picture in islice(rest, AHEAD))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(work, picture) for picture in islice(rest, 1))
        finally:
            for future in waiting:
                future.cancel()
