"""Rows of small pictures in one pair of axes."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from reports.figures.drawn import WIDTH, heading
from reports.figures.models.seen import pixels

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
    tall, wide = shown.shape[:2]
    room = 1 - 2 * EDGE
    w, h = room * wide / max(wide, tall), room * tall / max(wide, tall)
    x, y = column + 0.5, top + 0.5
    extent = (x - w / 2, x + w / 2, y + h / 2, y - h / 2)
    panel.imshow(shown, extent=extent, interpolation="antialiased", aspect="auto")
    panel.add_patch(
        Rectangle(
            (x - w / 2, y - h / 2), w, h, fill=False, edgecolor=edge, linewidth=1.8, linestyle=dash
        )
    )
    panel.text(x, top + 1.0, words, ha="center", va="top", fontsize=6.5)
    return x, y
