"""How images of files are kept in the cache: as pixels where those fit, else as they are encoded.

Pixels are decoded once into one memory-mapped run of bytes with a table of sizes. The short side is
brought to round(image_size·256/224), or as `data.eval_resize` or `data.stored_side` say; evaluation
then takes the centre `image_size` square as it lies, as the papers' Resize(256) + CenterCrop(224)
does, unless images are kept larger than it wants them.

Encoded images are the bytes of their files in one memory-mapped file, decoded when asked for by the
same function, so that a trial's numbers are the same to the bit. The first pass decodes each of
them too, so that a damaged image ends a run before it begins. One file serves all sizes.

`data.store: auto` takes what is there already. Otherwise it takes pixels if they need at most half
of the free disk of the cache and fit into the machine's memory, as the heads of some files tell.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil
import torch
from PIL import Image
from torch import Tensor

from trainables.data.cache import get_or_build
from trainables.data.decode import (
    FORMATS,
    Box,
    Picture,
    compute_short_size,
    decode_picture,
    map_ahead,
    silence_size_warning,
)
from trainables.data.files.index import Index
from trainables.data.images import Images, map_array
from trainables.machine.progress import Progress

if TYPE_CHECKING:
    from trainables.config.images import DataConfig

Kind = Literal["pixels", "encoded"]
Pictures = Callable[[int], Iterable[Picture]]  # those from a row on, in order
SAMPLE = 64  # heads that are read
SHARE = 0.5  # of the free disk that pixels may take


@dataclass(frozen=True)
class Choice:
    """kind: what is kept. there: whether it lies in the cache whole. why: of `auto`, in words.

    bytes: that all pixels take, about; None where nothing depends on it.
    """

    kind: Kind
    there: bool
    why: str = ""
    bytes: float | None = None


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
        """Decode an image: [H, W, C] uint8."""
        start, length = int(self.offsets[row]), int(self.lengths[row])
        content = self.flat[start : start + length].numpy().tobytes()
        box = self.boxes[row] if self.boxes is not None else None
        pixels = decode_picture(Picture(Path(self.names[row]), content, box), self.short)
        return torch.from_numpy(np.array(pixels))

    def is_resident(self, device: torch.device) -> bool:
        """Never: decoded they are nowhere."""
        return False

    def to(self, device: torch.device | str, share: float = 0.3) -> Images:
        """As they are: only decoded ones could be of use on a device."""
        return self


def load_stored(folder: Path, index: Index, pictures: Pictures, config: DataConfig) -> Images:
    """Return images from a folder of the cache; made there if need be.

    Args:
        folder: named after the content of the data; how it is kept is added to its name.
        pictures: of the rows of `index` from one on, in order.
    """
    kind = choose_store(folder, index, pictures, config).kind
    is_encoded, short = kind == "encoded", config.stored_short_side

    def keep(picture: Picture) -> tuple[bytes | memoryview, int, int]:
        """Return what is kept of a picture, and its height and width."""
        if is_encoded:
            content = picture.read_bytes()
            decoded = decode_picture(picture._replace(content=content), None)
            return content, *decoded.shape[:2]
        pixels = np.ascontiguousarray(decode_picture(picture, short))
        return pixels.data, *pixels.shape[:2]

    def build(fresh: Path) -> None:
        doing = f"{'reading' if is_encoded else 'decoding'} {index.base}"
        progress, rows = Progress(doing, len(index)), list[tuple[int, int, int]]()
        # Written, not mapped: a full disk is then an error here, not a SIGBUS later.
        with (fresh / f"{kind}.bin").open("wb") as out, silence_size_warning():
            for content, height, width in map_ahead(keep, pictures(0)):
                rows.append((out.write(content), height, width))
                progress.update(len(rows))
        lengths, heights, widths = np.array(rows, np.int64).T
        starts = np.cumsum(lengths) - lengths
        columns = [starts, *([lengths] if is_encoded else []), heights, widths]
        np.save(fresh / "table.npy", np.stack(columns, 1), allow_pickle=False)

    folder = get_or_build(_list_kind_folders(folder, short)[kind], build)
    table = np.load(folder / "table.npy", allow_pickle=False)
    if is_encoded and short is not None:
        sizes = [compute_short_size((w, h), short)[::-1] for h, w in table[:, 2:4].tolist()]
        table[:, 2:4] = np.array(sizes, np.int64)
    # Caches of before 0.2.0 have labels in a further column.
    columns = [torch.from_numpy(column.copy()) for column in table.T[: 4 if is_encoded else 3]]
    common: dict[str, Any] = {
        "flat": map_array(folder / f"{kind}.bin"),
        "offsets": columns[0],
        "heights": columns[-2],
        "widths": columns[-1],
        "channels": 3,
        "frame": config.image_size / config.eval_side,
    }
    if not is_encoded:
        return Images(**common)
    names = tuple(str(index.base / path) for path in index.paths)
    return EncodedImages(**common, lengths=columns[1], short=short, names=names, boxes=index.boxes)


def choose_store(folder: Path, index: Index, pictures: Pictures, config: DataConfig) -> Choice:
    """Choose how images are kept."""
    folders = _list_kind_folders(folder, config.stored_short_side)
    kind: Kind | None = None if config.store == "auto" else config.store
    if kind is None:
        kind = next((name for name, path in folders.items() if path.is_dir()), None)
    if kind is not None:
        return Choice(kind, folders[kind].is_dir())
    total = _estimate_bytes(index, pictures, config.stored_short_side)
    why = _explain_misfit(total, folder.parent)
    return Choice("encoded" if why else "pixels", False, why, total)


def _list_kind_folders(folder: Path, short: int | None) -> dict[Kind, Path]:
    return {
        "pixels": folder.with_name(f"{folder.name}-{short or 'original'}"),
        "encoded": folder.with_name(f"{folder.name}-encoded"),
    }


def _explain_misfit(total: float, cache: Path) -> str:
    """Say why pixels do not fit; empty, if they do."""
    while not cache.is_dir():
        cache = cache.parent
    free, memory = shutil.disk_usage(cache).free, psutil.virtual_memory().total
    if total > SHARE * free:
        return f"pixels would take {total / 1e9:.1f} GB of {free / 1e9:.1f} GB free in the cache"
    if total > memory:
        return f"pixels would take {total / 1e9:.1f} GB, memory has {memory / 1e9:.1f} GB"
    return ""


def _estimate_bytes(index: Index, pictures: Pictures, short: int | None) -> float:
    """Return about how many bytes the pixels of all images take, by the heads of some files.

    They lie evenly over all rows; of a table with the images in it they are the first.
    """
    sample: Iterable[Picture] = list(islice(pictures(0), SAMPLE))
    if all(picture.content is None for picture in sample):
        rows = np.linspace(0, len(index) - 1, min(SAMPLE, len(index))).astype(int).tolist()
        sample = (next(iter(pictures(row))) for row in rows)
    bytes_each = []
    for picture in sample:
        source = picture.path if picture.content is None else BytesIO(picture.content)
        try:
            with silence_size_warning(), Image.open(source, formats=FORMATS) as opened:
                size = opened.size
        except Exception:
            continue  # the first pass tells what is wrong with it
        if picture.box is not None:
            left, top, right, bottom = picture.box
            size = max(1, round(right - left)), max(1, round(bottom - top))
        width, height = size if short is None else compute_short_size(size, short)
        bytes_each.append(3 * width * height)
    return float(np.mean(bytes_each)) * len(index) if bytes_each else 0.0
