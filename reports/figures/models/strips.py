"""Rows of small pictures in one pair of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from reports.figures.drawn import WIDTH, heading
from reports.figures.models.seen import pixels

Grid = np.ndarray[Any, Any]

EDGE = 0.04  # of a place, around its picture
LETTERS = 0.42  # of a place's height, below it


def board(rows: int, columns: float, title: str) -> tuple[Canvas, Axes]:
    """A figure with room for rows of pictures, each with a line of letters below."""
    side = WIDTH / columns
    height = rows * side * (1 + LETTERS) + 0.4
    figure = Canvas(figsize=(WIDTH, height), layout="constrained")
    panel = figure.add_subplot()
    heading(figure, title)
    panel.set_xlim(0, columns)
    panel.set_ylim(rows * (1 + LETTERS), 0)
    panel.set_aspect("equal")
    panel.set_axis_off()
    return figure, panel


def place(
    panel: Axes, at: tuple[int, float], picture: str, words: str, frame: tuple[str, str]
) -> tuple[float, float]:
    """Draw a picture at a row and column, words below it, in a frame of a colour and a dash; where
    its middle is."""
    (row, column), (edge, dash) = at, frame
    top = row * (1 + LETTERS)
    shown = pixels(picture)
    x, y = column + 0.5, top + 0.5
    w, h = _size(shown)
    extent = (x - w / 2, x + w / 2, y + h / 2, y - h / 2)
    panel.imshow(shown, extent=extent, interpolation="antialiased", aspect="auto")
    panel.add_patch(
        Rectangle(
            (x - w / 2, y - h / 2), w, h, fill=False, edgecolor=edge, linewidth=1.8, linestyle=dash
        )
    )
    panel.text(x, top + 1.0, words, ha="center", va="top", fontsize=6.5)
    return x, y


def overlay(panel: Axes, middle: tuple[float, float], picture: str, grid: Grid) -> None:
    """Draw numbers in 0 … 1, [H, W], over a picture whose middle is here."""
    (x, y), (w, h) = middle, _size(pixels(picture))
    extent = (x - w / 2, x + w / 2, y + h / 2, y - h / 2)
    shown = panel.imshow(grid, extent=extent, interpolation="bilinear", aspect="auto")
    shown.set(cmap="inferno", clim=(0.0, 1.0), alpha=0.6)


def _size(shown: Grid) -> tuple[float, float]:
    """Width and height of a picture in its place."""
    tall, wide = shown.shape[:2]
    room = 1 - 2 * EDGE
    return room * wide / max(wide, tall), room * tall / max(wide, tall)
