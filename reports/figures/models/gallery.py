"""Retrieval as one sees it: queries, and the images found first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import COLOURS, Drawn, Spot, Strip, Tile, empty, style
from reports.figures.models.seen import Picture, Views, views
from reports.figures.models.strips import board, place
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

GAP = 0.35  # of a place, between query and what was found
QUERY, HIT, MISS = ("black", "-"), (COLOURS[0], "-"), (COLOURS[1], "--")
LETTERS = 11  # of a class's name below a picture


def gallery(frame: Frame, recipe: Figure) -> Drawn:
    """A row a query: it, then the images nearest to it, hits framed blue and whole, misses orange
    and dashed; the hardest failures last."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: what is found first"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    for each, view in told.found:
        rows = view["rows"]
        failed = sum(row["failed"] for row in rows)
        caption = (
            f"{told.who(each)}, {told.protocol}, {told.options.split} images. Left the query, then "
            "the nearest images with their score: blue and whole frames are of its class, orange "
            "and dashed ones are not. "
            f"{len(rows) - failed} queries were drawn"
            + (f"; the last {failed} are the hardest failures" if failed else "")
            + f". Of {view['looked_at']} queries looked at, {view['failing']} find another class "
            "first."
        )
    drawn = Picture(figure, caption, spots, apart=True, strips=_strips(told))
    return drawn.of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    if not told.found or not told.found[0][1]["rows"]:
        figure, panel = board(1, 6, title)
        empty(panel, "nothing was read")
        return figure, ()
    rows = told.found[0][1]["rows"]
    columns = 1 + GAP + max(len(row["near"]) for row in rows)
    figure, panel = board(len(rows), columns, title)
    spots = []
    for at, row in enumerate(rows):
        x, y = place(panel, (at, 0), row["query"], _short(row["class"]), QUERY)
        spots.append(Spot(panel, x, y, f"{row['class']}: {_first(row)}"))
        for number, near in enumerate(row["near"]):
            spot, words = (at, 1 + GAP + number), f"{near['score']:.2f}"
            x, y = place(panel, spot, near["picture"], words, HIT if near["hit"] else MISS)
            spots.append(Spot(panel, x, y, _near(number, near)))
    return figure, tuple(spots)


def _strips(told: Views) -> tuple[Strip, ...]:
    """The same for a page of its own."""
    rows = told.found[0][1]["rows"] if told.found else []
    return tuple(
        Strip(
            f"{row['class']}: {_first(row)}" + ("; a failure" if row["failed"] else ""),
            Tile(row["query"], "the query", row["class"]),
            tuple(
                Tile(
                    near["picture"],
                    f"{near['class']}, {near['score']:.2f}",
                    _near(number, near),
                    "hit" if near["hit"] else "miss",
                )
                for number, near in enumerate(row["near"])
            ),
        )
        for row in rows
    )


def _first(row: Mapping[str, Any]) -> str:
    return f"the first of its class is no. {row['rank']}"


def _near(number: int, near: Mapping[str, Any]) -> str:
    return f"{number + 1}: {near['class']}, {near['score']:.4f}"


def _short(name: str) -> str:
    return textwrap.shorten(name, LETTERS, placeholder="…") if " " in name else name[:LETTERS]
