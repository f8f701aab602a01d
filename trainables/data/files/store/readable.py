"""Whether images can be decoded, told before a run decodes all of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from trainables.data.cache import UNWRITABLE
from trainables.data.files.index import Index
from trainables.data.files.store.picture import Picture, ahead, picture_pixels
from trainables.data.files.store.pixels import Pictures
from trainables.errors import ConfigError
from trainables.machine.digests import sealed, unsealed
from trainables.machine.files import write_atomically

MOST = 5_000  # images that a plan decodes; a run decodes all of them before its first trial
SIDE = 64  # of what is made of them, which is thrown away


@dataclass(frozen=True)
class Readable:
    """looked_at: how many of the images were decoded. bad: faults of those that could not be."""

    looked_at: int
    images: int
    bad: tuple[ConfigError, ...]


def find_unreadable(folder: Path, index: Index, pictures: Pictures) -> Readable:
    """Decode the images of a data set, of a large one 5,000 that lie evenly in it.

    That all of them could be read is noted beside `folder`, which is named after their content, so
    that the next plan need not look again.

    Args:
        folder: of the data set in the cache; it need not be there. pictures: of the rows of `index`
            from one on.
    """
    note = folder.parent / f"{folder.name}.readable"
    rows = np.unique(np.linspace(0, len(index) - 1, min(MOST, len(index))).astype(int)).tolist()
    try:
        known = unsealed(note)
    except OSError:
        known = None
    if known == {"images": len(rows)}:
        return Readable(len(rows), len(index), ())
    inside = any(picture.content is not None for picture in islice(pictures(0), 1))
    if inside or len(rows) == len(index):  # of a table with the images in it the first
        chosen: Iterable[Picture] = islice(pictures(0), len(rows))
    else:
        chosen = (picture for row in rows for picture in islice(pictures(row), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        bad = tuple(fault for fault in ahead(_fault, chosen) if fault is not None)
    if not bad:
        try:
            write_atomically(note, sealed({"images": len(rows)}))
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise  # without the note the next plan looks again, which costs time alone
    return Readable(len(rows), len(index), bad)


def _fault(picture: Picture) -> ConfigError | None:
    try:
        picture_pixels(picture, SIDE)
    except ConfigError as error:
        return error
    return None
