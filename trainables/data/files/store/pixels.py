"""Pictures decoded once into one memory-mapped run of bytes with a table of sizes.

The short side is brought to round(image_size·256/224), or as `data.eval_resize` or
`data.stored_side` say; evaluation then takes the centre `image_size` square as it lies, as the
papers' Resize(256) + CenterCrop(224) does, unless images are kept larger than it wants them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainables.data.cache import published
from trainables.data.files.index import Index
from trainables.data.files.store.picture import Picture, ahead, picture_pixels
from trainables.data.files.store.under_way import UnderWay
from trainables.data.images import Images, mapped_bytes
from trainables.machine.progress import Progress

FILE = "pixels.bin"
Pictures = Callable[[int], Iterable[Picture]]  # those from a row on, in order
Stored = tuple[Images, Tensor, tuple[str, ...]]


def folder_of_pixels(folder: Path, short: int | None) -> Path:
    """Where pixels of that side are kept, beside `folder`, which the data's content names."""
    return folder.with_name(f"{folder.name}-{short or 'original'}")


def pixels(
    folder: Path, index: Index, pictures: Pictures, *, short: int | None, frame: float
) -> Stored:
    """Images, labels and class names; decoded first, if they are not there."""
    folder = published(
        folder_of_pixels(folder, short),
        lambda fresh: _decode(index, pictures, short, fresh),
        goes_on=True,
    )
    table = torch.from_numpy(np.load(folder / "table.npy", allow_pickle=False))
    images = Images(
        flat=mapped_bytes(folder / FILE),
        offsets=table[:, 0].contiguous(),
        heights=table[:, 1].contiguous(),
        widths=table[:, 2].contiguous(),
        channels=3,
        frame=frame,
    )
    return images, table[:, 3].contiguous(), classes_of(folder)


def classes_of(folder: Path) -> tuple[str, ...]:
    return tuple(json.loads((folder / "classes.json").read_text()))


def _decode(
    index: Index, pictures: Pictures, short: int | None, folder: Path
) -> dict[str, list[str]]:
    # The limits and their message are `decode`'s; Pillow's warning would be one more line.
    with UnderWay(folder, FILE) as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        done = len(out.rows)
        progress = Progress(f"decoding {index.base}", len(index), done)
        work = partial(picture_pixels, short=short)
        for row, made in enumerate(ahead(work, pictures(done)), done):
            height, width = made.shape[:2]
            label = int(index.labels[row])
            out.add(np.ascontiguousarray(made).data, [out.size, height, width, label])
            progress.at(row + 1)
    np.save(folder / "table.npy", np.array(out.rows, np.int64), allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(index.classes))
    return {FILE: out.digests()}
