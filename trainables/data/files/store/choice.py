"""How images of files are kept: as pixels where those fit, else as they are encoded.

`data.store: auto` takes what is there already. Otherwise pixels, if all of them take at most half
of what is free on the cache's disk, and fit into the machine's memory, from which all its trials
then read them. What they take is told by the sizes that some files' heads say. Either way the
numbers of a trial are the same.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import psutil
from PIL import Image

from trainables.data.cache import begun
from trainables.data.decode import FORMATS, short_size
from trainables.data.files.index import Index
from trainables.data.files.store.encoded import encoded, folder_of_encoded
from trainables.data.files.store.picture import Picture
from trainables.data.files.store.pixels import Pictures, Stored, folder_of_pixels, pixels

if TYPE_CHECKING:
    from trainables.config.images import DataConfig

Kind = Literal["pixels", "encoded"]
SAMPLE = 64  # heads that are read
SHARE = 0.5  # of the free disk that pixels may take


@dataclass(frozen=True)
class Choice:
    """kind: what is kept. there: whether it lies in the cache whole. why: of `auto`, in words.

    bytes: that all pixels take, about. smaller, larger: share of the images that are made smaller
        or larger than they are. All of them None, where no file was looked at.
    """

    kind: Kind
    there: bool
    why: str = ""
    bytes: float | None = None
    smaller: float | None = None
    larger: float | None = None


def stored(folder: Path, index: Index, pictures: Pictures, config: DataConfig) -> Stored:
    """Images, labels and class names, from a folder of the cache; made there if they are not.

    Args:
        folder: named after the content of the data; how it is kept is added to its name.
        pictures: of the rows of `index` from one on, in order.
    """
    made = pixels if chosen(folder, index, pictures, config).kind == "pixels" else encoded
    frame = config.image_size / config.evaluated
    return made(folder, index, pictures, short=config.kept, frame=frame)


def chosen(
    folder: Path, index: Index, pictures: Pictures, config: DataConfig, *, look: bool = False
) -> Choice:
    """Which of the two.

    Args:
        look: at files even where nothing depends on it.
    """
    places: dict[Kind, Path] = {
        "pixels": folder_of_pixels(folder, config.kept),
        "encoded": folder_of_encoded(folder),
    }
    there = {kind: place.is_dir() for kind, place in places.items()}
    wanted: Kind | None = None if config.store == "auto" else config.store
    if wanted is None:
        left = [kind for kind in places if there[kind]]
        left += [kind for kind, place in places.items() if begun(place).is_dir()]
        wanted = next(iter(left), None)
    if wanted is not None and not look:
        return Choice(wanted, there[wanted])
    bytes_each, smaller, larger = _sizes(_some(index, pictures), config.kept)
    total = bytes_each * len(index)
    fits = _fits(total, folder.parent)
    kind: Kind = wanted or ("encoded" if fits else "pixels")
    why = fits if wanted is None else ""
    return Choice(kind, there[kind], why, total, smaller, larger)


def _fits(total: float, cache: Path) -> str:
    """Why pixels do not fit; empty, if they do."""
    while not cache.is_dir():
        cache = cache.parent
    free, memory = shutil.disk_usage(cache).free, psutil.virtual_memory().total
    if total > SHARE * free:
        return f"pixels would take {total / 1e9:.1f} GB of {free / 1e9:.1f} GB free in the cache"
    if total > memory:
        return f"pixels would take {total / 1e9:.1f} GB, memory has {memory / 1e9:.1f} GB"
    return ""


def _some(index: Index, pictures: Pictures) -> Iterable[Picture]:
    """Evenly over all rows, where they are files; of a table with the images in it the first."""
    if any(picture.content is not None for picture in islice(pictures(0), 1)):
        yield from islice(pictures(0), SAMPLE)
        return
    for row in np.unique(np.linspace(0, len(index) - 1, SAMPLE).astype(int)).tolist():
        yield from islice(pictures(row), 1)


def _sizes(some: Iterable[Picture], short: int | None) -> tuple[float, float, float]:
    """Bytes of an image's pixels in the mean, and the shares that are made smaller and larger."""
    total, count, smaller, larger = 0, 0, 0, 0
    for picture in some:
        size = _size(picture)
        if size is None:
            continue  # the first pass tells what is wrong with it
        width, height = size if short is None else short_size(size, short)
        total, count = total + 3 * width * height, count + 1
        smaller += short is not None and min(size) > short
        larger += short is not None and min(size) < short
    return (total / count, smaller / count, larger / count) if count else (0.0, 0.0, 0.0)


def _size(picture: Picture) -> tuple[int, int] | None:
    """Of what is kept of a picture, by the file's head."""
    if picture.box is not None:
        left, top, right, bottom = (round(edge) for edge in picture.box)
        return max(1, right - left), max(1, bottom - top)
    source = picture.path if picture.content is None else BytesIO(picture.content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(source, formats=FORMATS) as opened:
                return opened.size
    except Exception:
        return None
