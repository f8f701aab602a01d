"""Keep images of files in the cache as pixels, or as encoded files if pixels do not fit.

Pixels are decoded once into one memory-mapped array, with the short side
`DataConfig.stored_short_side`. Encoded images are the bytes of their files in one memory-mapped
file, decoded on demand by the same function, so a trial's numbers are equal to the bit. The first
pass decodes each of them too, so that damaged images end a run before it begins. The pass goes on
after a damaged image, so that one error names all of them.

`data.store: auto` takes what exists. Otherwise it takes pixels if they need at most half of the
cache's free disk and fit into the machine's memory.
"""

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import torch
from torch import Tensor

from trainables.config.images import DataConfig
from trainables.data.archives import name_unreadable_file
from trainables.data.cache import get_or_build
from trainables.data.dataset import Listing
from trainables.data.decode import (
    Box,
    DeepValues,
    ImageSource,
    Range,
    compute_short_size,
    decode_picture,
    decode_with_values,
)
from trainables.data.images import Images, map_array
from trainables.data.survey import Survey, name_range

LOG = logging.getLogger(__name__)
Kind = Literal["pixels", "encoded"]
Entry = tuple[bytes | memoryview, int, int]  # what is stored of an image, its height and width
SHARE = 0.5  # of the free disk that pixels may take
ORIGINAL_SIDE = 384  # short side that photographs are taken to have before they are read
ASPECT = 4 / 3  # long side / short side that they are taken to have


@dataclass(frozen=True, kw_only=True)
class EncodedImages(Images):
    """Encoded images in one array.

    Attributes:
        flat: [total bytes] uint8 of the files.
        offsets, lengths: [N].
        heights, widths: [N], as decoded.
        short: short side after decoding; None for the original size.
        grey_range: `data.grey_range`.
        names: of the files, for messages.
        boxes: the part of each image to keep.
    """

    lengths: Tensor
    short: int | None
    grey_range: Range | None
    names: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    at_once = 1  # a decoded image takes long enough to be a task of its own
    is_decoded = False

    def __getitem__(self, row: int) -> Tensor:
        """Decode the image of a row to [H, W, C] uint8."""
        start, length = int(self.offsets[row]), int(self.lengths[row])
        content = self.flat[start : start + length].numpy().tobytes()
        picture = ImageSource(Path(self.names[row]), content, self.boxes[row])
        return torch.from_numpy(np.array(decode_picture(picture, self.short, self.grey_range)))


def load_stored(folder: Path, listing: Listing, config: DataConfig) -> Images:
    """Return the images of the cache, decoded or encoded; store them there first if needed.

    Args:
        folder: path in the cache, named by the content of the data; the kind of store is appended.
    """
    kind, short = choose_store(folder, len(listing.rows), config), config.stored_short_side
    is_encoded, grey_range = kind == "encoded", config.grey_range

    def read_image(image: ImageSource) -> tuple[Entry, np.ndarray, DeepValues | None]:
        """Return an image's entry in the store, its pixels, and its values of more than 8 bits."""
        if is_encoded:
            with name_unreadable_file(image.path):
                content = image.path.read_bytes()
            pixels, values = decode_with_values(image._replace(content=content), None, grey_range)
            return (content, *pixels.shape[:2]), pixels, values
        pixels, values = decode_with_values(image, short, grey_range)
        return (np.ascontiguousarray(pixels).data, *pixels.shape[:2]), pixels, values

    def build_store(fresh: Path) -> None:
        """Write all images into a file, and a table: start, length if encoded, height, width."""
        survey, rows = Survey(listing, grey_range), list[tuple[int, int, int]]()
        # The file is written and not mapped, so that a full disk raises an error here.
        with (fresh / f"{kind}.bin").open("wb") as out:
            task = "reading" if is_encoded else "decoding"
            for content, height, width in survey.decode_all(read_image, task):
                if not survey.unreadable:  # after a damaged image the pass only looks for others
                    rows.append((out.write(content), height, width))
        survey.save(folder)
        lengths, heights, widths = np.array(rows, np.int64).T
        starts = np.cumsum(lengths) - lengths
        columns = [starts, *([lengths] if is_encoded else []), heights, widths]
        np.save(fresh / "table.npy", np.stack(columns, 1), allow_pickle=False)

    store = get_or_build(_name_store(folder, kind, config), build_store)
    table = np.load(store / "table.npy", allow_pickle=False)
    if is_encoded and short is not None:  # the table has the sizes before resizing
        sizes = [compute_short_size((w, h), short) for h, w in table[:, 2:4].tolist()]
        table[:, 2:4] = np.array(sizes, np.int64)[:, ::-1]  # from (width, height)
    # take only the columns named below: caches of versions before 0.2.0 have one more, of labels
    columns = [torch.from_numpy(column.copy()) for column in table.T[: 4 if is_encoded else 3]]
    frame = config.image_size / config.eval_side
    offsets, *lengths, heights, widths = columns  # `lengths` is empty for pixels
    images = Images(map_array(store / f"{kind}.bin"), offsets, heights, widths, 3, frame)
    if not is_encoded:
        return images
    names = tuple(str(image.path) for image in listing.images)
    boxes = tuple(row.box for row in listing.rows)
    return EncodedImages(
        **vars(images),
        lengths=lengths[0],
        short=short,
        grey_range=grey_range,
        names=names,
        boxes=boxes,
    )


def choose_store(folder: Path, images: int, config: DataConfig) -> Kind:
    """Return the configured kind; for "auto" the kind in the cache, else pixels if they fit."""
    if config.store != "auto":
        return config.store
    kinds: tuple[Kind, Kind] = ("pixels", "encoded")
    for kind in kinds:
        if _name_store(folder, kind, config).is_dir():
            return kind
    total = images * 3 * ASPECT * (config.stored_short_side or ORIGINAL_SIDE) ** 2  # bytes
    cache = next(parent for parent in folder.absolute().parents if parent.is_dir())
    free, memory = shutil.disk_usage(cache).free, psutil.virtual_memory().total
    if total <= min(SHARE * free, memory):
        return "pixels"
    LOG.info(
        "images are kept encoded: pixels would take about %.1f GB, where %.1f GB are free in %s "
        "and the memory is %.1f GB",
        total / 1e9,
        free / 1e9,
        cache,
        memory / 1e9,
    )
    return "encoded"


def _name_store(folder: Path, kind: Kind, config: DataConfig) -> Path:
    """Return the folder of the images' store; encoded images are those of the files."""
    if kind == "encoded":
        return folder.with_name(f"{folder.name}-encoded")
    side = config.stored_short_side or "original"
    return folder.with_name(f"{folder.name}-{side}{name_range(config.grey_range)}")
