"""Retrieval as one sees it: queries, and the images found first."""

from __future__ import annotations

import textwrap

from pydantic import Field, model_validator

import reports.figures.figure as plot
from reports.figures.models import (
    ModelOptions,
    Picture,
    Views,
    create_picture_board,
    put_picture,
    register_model_figure,
)

GAP = 0.35  # of a place, between query and what was found
QUERY = ("black", "-")
EDGES = {"hit": (plot.COLOURS[0], "-"), "miss": (plot.COLOURS[1], "--")}
LETTERS = 11  # of a class's name below a picture


class GalleryOptions(ModelOptions):
    """Of `gallery`. queries: drawn, each of another class. failures: so many of the hardest.
    nearest: images beside each."""

    queries: int = Field(4, ge=0, le=24)
    failures: int = Field(4, ge=0, le=24)
    nearest: int = Field(8, ge=1, le=16)

    @model_validator(mode="after")
    def check_has_rows(self) -> GalleryOptions:
        if not self.queries + self.failures:
            raise ValueError("queries, failures or both, not neither")
        return self


@register_model_figure(GalleryOptions, "what is found first", apart=True)
def gallery(views: Views, title: str) -> Picture:
    """Draw a row a query: it, then the images nearest to it, hits framed blue and whole, misses
    orange and dashed; the hardest failures last."""
    each, view = views.found[0]
    rows = view["rows"]
    failed = sum(row["failed"] for row in rows)
    caption = (
        f"{views.describe_model(each)}, {views.protocol}, {views.options.split} images. Left the "
        "query, then the nearest images with their score: blue and whole frames are of its class, "
        f"orange and dashed ones are not. {len(rows) - failed} queries were drawn"
        + (f"; the last {failed} are the hardest failures" if failed else "")
        + f". Of {view['looked_at']} queries looked at, {view['failing']} find another class first."
    )
    most = max((len(row["near"]) for row in rows), default=0)
    drawing, panel = create_picture_board(max(len(rows), 1), 1 + GAP + most, title)
    spots, strips = [], []
    for at, row in enumerate(rows):
        name, first = row["class"], f"{row['class']}: the first of its class is no. {row['rank']}"
        short = textwrap.shorten(name, LETTERS, placeholder="…") if " " in name else name[:LETTERS]
        spots.append(
            plot.Tooltip(panel, *put_picture(panel, (at, 0), row["query"], short, QUERY), first)
        )
        tiles = [plot.Tile(row["query"], "the query", name)]
        for number, near in enumerate(row["near"]):
            edge, score = "hit" if near["hit"] else "miss", f"{near['score']:.2f}"
            place, words = (
                (at, 1 + GAP + number),
                f"{number + 1}: {near['class']}, {near['score']:.4f}",
            )
            middle = put_picture(panel, place, near["picture"], score, EDGES[edge])
            spots.append(plot.Tooltip(panel, *middle, words))
            tiles.append(plot.Tile(near["picture"], f"{near['class']}, {score}", words, edge))
        strips.append((first + ("; a failure" if row["failed"] else ""), tuple(tiles)))
    return Picture(drawing, caption, tuple(spots), tuple(strips))
