"""A contact sheet: small pictures of a data set side by side, each with its class below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE, CAPTION = 96, 14  # pixels
COLUMNS, ROWS = 12, 8
LETTERS = 15  # of a class's name


def chosen(labels: np.ndarray) -> list[int]:
    """Rows for a sheet: the first of each class, or of so many as it holds, evenly spaced."""
    _, first = np.unique(labels, return_index=True)
    most = COLUMNS * ROWS
    places = np.linspace(0, len(first) - 1, min(most, len(first))).round().astype(int)
    return [int(first[place]) for place in dict.fromkeys(places.tolist())]


def write_sheet(path: Path, pictures: Sequence[tuple[np.ndarray, str]]) -> None:
    """A PNG of pictures ([H, W, 3] or [H, W] uint8) with their classes.

    Raises:
        OSError: it cannot be written.
    """
    columns = max(1, min(COLUMNS, len(pictures)))
    rows = max(1, -(-len(pictures) // columns))
    sheet = Image.new("RGB", (columns * SIDE, rows * (SIDE + CAPTION)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    for place, (pixels, label) in enumerate(pictures):
        left, top = place % columns * SIDE, place // columns * (SIDE + CAPTION)
        small = Image.fromarray(pixels).convert("RGB")
        small.thumbnail((SIDE - 4, SIDE - 4))
        sheet.paste(small, (left + (SIDE - small.width) // 2, top + (SIDE - small.height) // 2))
        draw.text((left + 2, top + SIDE), label[:LETTERS], fill="black", font=font)
    sheet.save(path, "PNG")
