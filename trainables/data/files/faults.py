"""Find all images of a data set that cannot be decoded, and name all faults in one error.

Some faults show only when all images are decoded: values of greys that fill a small part of their
type, and many images of a single colour.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.data.cache import get_or_build
from trainables.data.dataset import Index
from trainables.data.decode import Picture, decode_with_values, map_ahead
from trainables.data.files.data_set_markers import join_names
from trainables.data.greys import DeepValues, Range, check_deep_values
from trainables.words.errors import ConfigError
from trainables.words.terminal import ImageProgress

SIDE = 96  # short side to which images are decoded, in pixels
MANY = 1 / 100  # share of images of a single colour at which they are mentioned
NOTES = "notes.json"  # in the folder of a survey in the cache


class Traits(NamedTuple):
    """What a decoded image shows: whether its pixels are all equal, and its values if deep."""

    is_constant: bool
    values: DeepValues | None


def decode_with_traits(
    picture: Picture, short: int | None, grey_range: Range | None
) -> tuple[np.ndarray, Traits]:
    """Return a picture's pixels as `decode_picture` does, and its traits."""
    pixels, values = decode_with_values(picture, short, grey_range)
    return pixels, Traits(bool((pixels == pixels[0, 0]).all()), values)


class Survey:
    """What decoding all images of a data set shows.

    Attributes:
        unreadable: path → error of the images that cannot be decoded.
        constant: paths of the images whose pixels are all equal.
        deep: paths and values of the images of more than 8 bits.
    """

    def __init__(self, index: Index, grey_range: Range | None) -> None:
        self.index, self.grey_range = index, grey_range
        self.unreadable: dict[str, ConfigError] = {}
        self.constant: list[str] = []
        self.deep: list[tuple[str, DeepValues]] = []

    def add(self, path: str, result: Traits | ConfigError) -> None:
        """Add the traits of the image `path` of the index, or why it cannot be decoded."""
        if isinstance(result, ConfigError):
            self.unreadable[path] = result
            return
        if result.is_constant:
            self.constant.append(path)
        if result.values is not None:
            self.deep.append((path, result.values))

    def list_notes(self) -> list[str]:
        """Return warnings of the images; refuse greys that fill a small part of their type."""
        notes = check_deep_values(self.deep, self.grey_range)
        total = len(self.index.rows)
        if len(self.constant) >= MANY * total > 0:
            notes.append(
                f"{len(self.constant):,} of {total:,} images have a single colour "
                f"({join_names(self.constant)}). Look at these files: they show nothing."
            )
        return notes

    def check(self, empty: Sequence[str] = ()) -> list[str]:
        """Return `list_notes`; refuse all faults together, also class folders `empty`."""
        if not self.unreadable and not empty:
            return self.list_notes()
        error = build_fault_error(self.index, self.unreadable, empty)
        try:
            self.list_notes()
        except ConfigError as greys:
            raise ConfigError(error.path, f"{error.message} {greys}") from greys
        raise error

    def save(self, folder: Path) -> None:
        """Check, and keep the notes beside the images that are or may be stored in `folder`."""
        notes = json.dumps(self.check())

        def write_notes(fresh: Path) -> None:
            (fresh / NOTES).write_text(notes, encoding="utf-8")

        get_or_build(name_survey(folder, self.grey_range), write_notes)


def name_survey(folder: Path, grey_range: Range | None) -> Path:
    """Return the folder of the survey of images that are stored in `folder` of the cache."""
    return folder.with_name(f"{folder.name}-survey{name_range(grey_range)}")


def name_range(grey_range: Range | None) -> str:
    """Return a part of a folder's name that identifies `data.grey_range`; "" for None."""
    return (
        "" if grey_range is None else f"-{hashlib.sha256(str(grey_range).encode()).hexdigest()[:8]}"
    )


def read_notes(survey: Path) -> list[str]:
    """Return the notes of a survey in the cache."""
    notes: list[str] = json.loads((survey / NOTES).read_text(encoding="utf-8"))
    return notes


def examine_images(
    index: Index, pictures: Iterable[Picture], grey_range: Range | None = None
) -> Survey:
    """Decode all pictures of an index, and return what they show."""

    def decode(picture: Picture) -> Traits | ConfigError:
        try:
            return decode_with_traits(picture, SIDE, grey_range)[1]
        except ConfigError as error:
            return error

    survey = Survey(index, grey_range)
    progress = ImageProgress(f"decoding {index.base}", len(index.rows))
    results = map_ahead(decode, pictures)
    for number, (row, result) in enumerate(zip(index.rows, results, strict=True), 1):
        survey.add(row.path, result)
        progress.update(number)
    return survey


def list_single_classes(labels: Tensor, classes: Sequence[str]) -> list[str]:
    """Return the names of the classes that have exactly one image."""
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    return [name for name, size in zip(classes, sizes, strict=True) if size == 1]


def build_fault_error(
    index: Index, unreadable: dict[str, ConfigError], empty: Sequence[str] = ()
) -> ConfigError:
    """Return one error for all faults: unreadable images, classes of one image, empty classes.

    Classes of a single image are no error alone. A single unreadable image has its own error.

    Args:
        index: the images that exist.
        unreadable: path → error.
        empty: class folders without an image.
    """
    dataset = index.to_plan_dataset()
    has_roles = dataset.roles is not None  # a query's class may have one image in the gallery
    singles = [] if has_roles else list_single_classes(dataset.labels, dataset.classes)
    if len(unreadable) == 1 and not singles and not empty:
        return next(iter(unreadable.values()))
    faults = []
    if unreadable:
        count = f"{len(unreadable):,} of {len(index.rows):,} images cannot be read"
        faults.append(f"{count} ({join_names([*unreadable])})")
    if singles:
        faults.append(f"classes with a single image: {join_names(singles)}")
    if empty:
        faults.append(f"class folders without an image: {join_names(empty)}")
    remedies = ["Add images, or remove these folders."] if empty else []
    remedies += [f"{path}: {error.message}" for path, error in [*unreadable.items()][:1]]
    return ConfigError("data.root", f"{index.base}: {'; '.join(faults)}", " ".join(remedies))
