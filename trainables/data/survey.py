"""Decode all images of a data set, and name all that is wrong with them in one error.

Some faults show only when all images are decoded: many images of a single colour, and values of
images of more than 8 bits that fill a small part of their type. A camera of 12 bits, or a program
that saves 0 … 1 as floats, fills a small part of the range that is read (`decode.py`), and its
pictures would be black; those of a thermal camera, such as 30000 … 31000, would have few levels of
grey. A single dark photograph proves nothing, so the images of a data set, or of one call of
`model.embed`, are judged together.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from trainables.data.archives import join_names
from trainables.data.cache import get_or_build
from trainables.data.dataset import Listing
from trainables.data.decode import (
    COLOURS,
    INTEGERS,
    WHITES,
    DeepValues,
    ImageSource,
    Range,
    decode_with_values,
    map_ahead,
)
from trainables.words.errors import ConfigError
from trainables.words.terminal import ImageProgress

SIDE = 96  # short side to which images are decoded, in pixels
MANY = 1 / 100  # share of images of a single colour at which they are mentioned
NOTES = "notes.json"  # in the folder of a survey in the cache
T = TypeVar("T")
OPTION = "data.grey_range"
LEAST_SHARE = 1 / 4  # of the range: an image of lower values is nearly black
LEAST_SPAN = 1 / 16  # of the range: an image of one colour apart, a smaller span has few levels
SLACK = 1 / 10  # of the range: beyond it, cut off values are visible


class Survey:
    """What decoding all images of a data set shows.

    Attributes:
        unreadable: path → error of the images that cannot be decoded.
        constant: paths of the images whose pixels are all equal.
        deep: paths and values of the images of more than 8 bits.
    """

    def __init__(self, listing: Listing, grey_range: Range | None) -> None:
        self.listing, self.grey_range = listing, grey_range
        self.unreadable: dict[str, ConfigError] = {}
        self.constant: list[str] = []
        self.deep: list[tuple[str, DeepValues]] = []

    def decode_all(
        self, decode: Callable[[ImageSource], tuple[T, np.ndarray, DeepValues | None]], task: str
    ) -> Iterator[T]:
        """Decode all images, note what they show, and yield what `decode` makes of each.

        Args:
            decode: returns any content, with the pixels and values of `decode_with_values`. An
                image of which it raises ConfigError is noted, and yields nothing.
            task: what the log of the progress calls this.
        """

        def try_to_decode(image: ImageSource) -> tuple[T, bool, DeepValues | None] | ConfigError:
            try:
                content, pixels, values = decode(image)
            except ConfigError as error:
                return error
            return content, bool((pixels == pixels[0, 0]).all()), values

        base, rows = self.listing.base, self.listing.rows
        progress = ImageProgress(f"{task} {base}", len(rows))
        results = map_ahead(try_to_decode, self.listing.images)
        for number, (row, result) in enumerate(zip(rows, results, strict=True), 1):
            if isinstance(result, ConfigError):
                self.unreadable[row.path] = result
            else:
                content, is_constant, values = result
                if is_constant:
                    self.constant.append(row.path)
                if values is not None:
                    self.deep.append((row.path, values))
                yield content
            progress.update(number)

    def list_notes(self) -> list[str]:
        """Return warnings of the images; refuse greys that fill a small part of their type."""
        notes = check_deep_values(self.deep, self.grey_range)
        total = len(self.listing.rows)
        if len(self.constant) >= MANY * total > 0:
            notes.append(
                f"{len(self.constant):,} of {total:,} images have a single colour "
                f"({join_names(self.constant)}). Look at these files: they show nothing."
            )
        return notes

    def check(self) -> list[str]:
        """Return `list_notes`; refuse all faults together, also class folders without an image."""
        if not self.unreadable and not self.listing.empty:
            return self.list_notes()
        error = build_fault_error(self.listing, self.unreadable)
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


def examine_images(listing: Listing, grey_range: Range | None = None) -> Survey:
    """Decode all images of a listing, and return what they show."""
    survey = Survey(listing, grey_range)

    def decode(image: ImageSource) -> tuple[None, np.ndarray, DeepValues | None]:
        return None, *decode_with_values(image, SIDE, grey_range)

    for _ in survey.decode_all(decode, "decoding"):
        pass
    return survey


def list_single_classes(labels: Tensor, classes: Sequence[str]) -> list[str]:
    """Return the names of the classes that have exactly one image."""
    sizes = torch.bincount(labels, minlength=len(classes)).tolist()
    return [name for name, size in zip(classes, sizes, strict=True) if size == 1]


def build_fault_error(listing: Listing, unreadable: dict[str, ConfigError]) -> ConfigError:
    """Return one error for all faults: unreadable images, classes of one image, empty classes.

    Classes of a single image are no error alone. A single unreadable image has its own error.

    Args:
        listing: the images that exist.
        unreadable: path → error.
    """
    empty = listing.empty
    dataset = listing.to_plan_dataset()
    has_roles = dataset.roles is not None  # a query's class may have one image in the gallery
    singles = [] if has_roles else list_single_classes(dataset.labels, dataset.classes)
    if len(unreadable) == 1 and not singles and not empty:
        return next(iter(unreadable.values()))
    faults = []
    if unreadable:
        count = f"{len(unreadable):,} of {len(listing.rows):,} images cannot be read"
        faults.append(f"{count} ({join_names([*unreadable])})")
    if singles:
        faults.append(f"classes with a single image: {join_names(singles)}")
    if empty:
        faults.append(f"class folders without an image: {join_names(empty)}")
    remedies = ["Add images, or remove these folders."] if empty else []
    remedies += [f"{path}: {error.message}" for path, error in [*unreadable.items()][:1]]
    return ConfigError("data.root", f"{listing.base}: {'; '.join(faults)}", " ".join(remedies))


def check_deep_values(
    images: Iterable[tuple[str, DeepValues]],
    grey_range: Range | None,
    where: str = OPTION,
    remedy: str = "Give the values of black and white",
) -> list[str]:
    """Refuse images of which at least half are nearly black, flat, or cut off by no stated range.

    Args:
        images: names and values of all images that are judged together.
        grey_range: `data.grey_range`.
        where: what the error names.
        remedy: what to do with the option and its value, which stand after it.

    Returns:
        Sentences on kinds of which fewer images are so, and on those that `data.grey_range` makes
        nearly black or flat.
    """
    notes, by_kind = list[str](), dict[str, dict[str, DeepValues]]()
    for name, values in images:
        by_kind.setdefault(values.kind, {})[name] = values
    for kind, group in by_kind.items():
        stated = None if kind == COLOURS else grey_range
        black, white = stated or (0, WHITES[kind])
        misfits = {
            n: v for n, v in group.items() if not _is_well_exposed(v, black, white, stated is None)
        }
        if not misfits:
            continue
        least, most = min(v.least for v in misfits.values()), max(v.most for v in misfits.values())
        fault = (
            f"{len(misfits):,} of {len(group):,} images with {kind} have values from {least:.6g} "
            f"to {most:.6g}, but {black:g} is read as black and {white:g} as white"
        )
        if stated is not None or 2 * len(misfits) < len(group):
            notes.append(f"{fault} ({join_names([*misfits])}). Look at these files.")
        else:
            suggestion = (
                f"[{least:.10g}, {most:.10g}]"
                if least >= black + LEAST_SHARE * (white - black)
                else _suggest_range(least, most, kind == INTEGERS)
            )
            raise ConfigError(
                where,
                f"{fault} ({join_names([*misfits])})",
                "Look at these files"
                if least == most
                else "Convert these images to 8 bits"
                if kind == COLOURS
                else f"{remedy}: {OPTION}: {suggestion}",
            )
    return notes


def _suggest_range(least: float, most: float, are_integers: bool) -> str:
    """Return values of black and white as YAML: of as many bits as were found, or 1 for floats."""
    white = most
    if are_integers and most > 0:
        white = (1 << int(most).bit_length()) - 1  # 4095 for 12 bits
    elif not are_integers and LEAST_SHARE <= most <= 1:
        white = 1
    return f"[{min(least, 0):.6g}, {white:.10g}]"


def _is_well_exposed(values: DeepValues, black: float, white: float, refuses_cuts: bool) -> bool:
    """Return whether an image is not nearly black or flat, nor cut off by a range nobody stated."""
    span = white - black
    one_level = 255 if values.kind == COLOURS else 0  # of an image of one colour
    if one_level < values.most - values.least < LEAST_SPAN * span:
        return False
    is_inside = values.least >= black - SLACK * span and values.most <= white + SLACK * span
    return values.most >= black + LEAST_SHARE * span and (is_inside or not refuses_cuts)
