"""Convert images of more than 8 bits to 8 bits, and refuse those whose values fill a small part.

Without `data.grey_range`, greys of 16 and 32 bits are read as 0 … 65535, and floats as 0 … 255. A
camera of 12 bits, or a program that saves 0 … 1 as floats, fills a small part of this range, and
its pictures would be black; those of a thermal camera, such as 30000 … 31000, would have few levels
of grey. A single dark photograph proves nothing, so the images of a data set,
or of one call of `model.embed`, are judged together.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from PIL import Image

from trainables.data.files.data_set_markers import join_names
from trainables.words.errors import ConfigError

OPTION = "data.grey_range"
Range = tuple[float, float]  # the values of black and white
INTEGERS, FLOATS, COLOURS = "greys of 16 or 32 bits", "float greys", "colours of 16 bits"
WHITES = {INTEGERS: 65535, FLOATS: 255, COLOURS: 65535}  # what is read as white
LEAST_SHARE = 1 / 4  # of the range: an image of lower values is nearly black
LEAST_SPAN = 1 / 16  # of the range: an image of one colour apart, a smaller span has few levels
SLACK = 1 / 10  # of the range: beyond it, cut off values are visible


class DeepValues(NamedTuple):
    """The kind of an image of more than 8 bits, and its least and largest value."""

    kind: str
    least: float
    most: float


def reduce_depth(image: Image.Image, grey_range: Range | None) -> tuple[Image.Image, DeepValues]:
    """Convert a grey image of 16 or 32 bits or of floats to 8 bits, and return its values too."""
    pixels = np.asarray(image)
    kind = FLOATS if image.mode == "F" else INTEGERS
    if kind == FLOATS and not np.isfinite(pixels).all():
        raise ValueError("it has NaN or infinite values")
    values = DeepValues(kind, float(pixels.min()), float(pixels.max()))
    if grey_range is not None:
        black, white = grey_range
        shares = (pixels.astype(np.float64) - black) / (white - black)
        reduced = np.rint(255 * shares.clip(0, 1))
    elif kind == INTEGERS:
        reduced = np.clip(pixels >> 8, 0, 255)
    else:
        reduced = np.clip(pixels, 0, 255)
    return Image.fromarray(reduced.astype(np.uint8)), values


def is_deep_grey(image: Image.Image) -> bool:
    """Return whether an image has one channel of more than 8 bits."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def measure_deep_colours(image: Image.Image) -> DeepValues:
    """Return the values of a loaded image of 16 bits, of which Pillow keeps the upper byte."""
    pixels = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return DeepValues(COLOURS, 256.0 * pixels.min(), 256.0 * pixels.max() + 255)


def has_deep_colours(image: Image.Image) -> bool:
    """Return whether Pillow will read 16 bits as 8; `image` was opened and not loaded yet."""
    tiles = () if is_deep_grey(image) else getattr(image, "tile", ())
    for codec, *_, options in tiles:
        white = options[-1] if codec.startswith("ppm") else 0  # that a PPM file states
        if codec == "SGI16" or white > 255 or ";16" in str(options):
            return True
    return False


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
