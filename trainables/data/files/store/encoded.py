"""Pictures kept as the bytes of their files, all in one memory-mapped file, decoded when asked for.

They are decoded by the same function as those kept as pixels, so that a trial's numbers are the
same to the bit. The first pass decodes each of them too: a damaged image ends a run before it
begins, and sizes are known. It keeps nothing that depends on a size: one file serves all.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainables.data.cache import published
from trainables.data.decode import decoded, short_size
from trainables.data.files.index import Box, Index
from trainables.data.files.store.picture import Picture, ahead
from trainables.data.files.store.pixels import Pictures, Stored, classes_of
from trainables.data.files.store.under_way import UnderWay
from trainables.data.images import Images, mapped_bytes
from trainables.machine.progress import Progress

FILE = "encoded.bin"


@dataclass(frozen=True, kw_only=True)
class EncodedImages(Images):
    """flat: [total bytes] uint8 of the files. offsets, lengths: [N], of each.

    heights, widths: [N], as decoded. short: side to which they are brought; None: as they lie.
    names: of the files, for messages. boxes: what of each is kept.
    """

    lengths: Tensor
    short: int | None
    names: tuple[str, ...]
    boxes: tuple[Box | None, ...] | None
    at_once = 1  # a decoded image takes long enough to be a task of its own

    def __getitem__(self, row: int) -> Tensor:
        """[H, W, C] uint8."""
        start, length = int(self.offsets[row]), int(self.lengths[row])
        content = self.flat[start : start + length].numpy().tobytes()
        box = self.boxes[row] if self.boxes is not None else None
        made = decoded(Path(self.names[row]), self.short, content=content, box=box)
        return torch.from_numpy(np.array(made))

    def resident(self, device: torch.device) -> bool:
        """Never: decoded they are nowhere."""
        return False

    def to(self, device: torch.device | str, share: float = 0.3) -> Images:
        """As they are: only decoded ones could be of use on a device."""
        return self


def folder_of_encoded(folder: Path) -> Path:
    """Where files' bytes are kept, beside `folder`, which the content of the data names."""
    return folder.with_name(f"{folder.name}-encoded")


def encoded(
    folder: Path, index: Index, pictures: Pictures, *, short: int | None, frame: float
) -> Stored:
    """Images, labels and class names; gathered first, if they are not there."""
    folder = published(
        folder_of_encoded(folder), lambda fresh: _gather(index, pictures, fresh), goes_on=True
    )
    table = np.load(folder / "table.npy", allow_pickle=False)
    sizes = table[:, 2:4]
    if short is not None:
        sizes = np.array([short_size((w, h), short)[::-1] for h, w in sizes.tolist()], np.int64)
    column = torch.from_numpy
    images = EncodedImages(
        flat=mapped_bytes(folder / FILE),
        offsets=column(table[:, 0].copy()),
        heights=column(sizes[:, 0].copy()),
        widths=column(sizes[:, 1].copy()),
        channels=3,
        frame=frame,
        lengths=column(table[:, 1].copy()),
        short=short,
        names=tuple(str(index.base / path) for path in index.paths),
        boxes=index.boxes,
    )
    return images, column(table[:, 4].copy()), classes_of(folder)


def _gather(index: Index, pictures: Pictures, folder: Path) -> dict[str, list[str]]:
    with UnderWay(folder, FILE) as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        done = len(out.rows)
        progress = Progress(f"reading {index.base}", len(index), done)
        for row, (content, (height, width)) in enumerate(ahead(_examined, pictures(done)), done):
            label = int(index.labels[row])
            out.add(content, [out.size, len(content), height, width, label])
            progress.at(row + 1)
    np.save(folder / "table.npy", np.array(out.rows, np.int64), allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(index.classes))
    return {FILE: out.digests()}


def _examined(picture: Picture) -> tuple[bytes, tuple[int, int]]:
    """The bytes of a file that is whole, and height and width of its picture."""
    content = picture.read()
    made = decoded(picture.path, None, content=content, box=picture.box)
    return content, made.shape[:2]
