"""Retrieval examples: query images and their nearest neighbours."""

import textwrap

from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models

GAP = 0.35  # between the query and its neighbours, in columns
# colour and dash of the frames
QUERY, HIT, MISS = ("black", "-"), (plot.COLOURS[0], "-"), (plot.COLOURS[1], "--")
LETTERS = 11  # of a class's name below a picture


class GalleryOptions(models.ModelOptions):
    """Options of `gallery`.

    queries: number of queries, each of another class.
    failures: how many of them are the hardest queries.
    nearest: number of neighbours beside each query.
    """

    queries: int = Field(4, ge=0, le=24)
    failures: int = Field(4, ge=0, le=24)
    nearest: int = Field(8, ge=1, le=16)


@models.register_model_figure(GalleryOptions, "what is found first", apart=True)
def gallery(views: models.Views, title: str) -> models.Picture:
    """Draw one row per query: the query, then its nearest images; the hardest queries come last.

    Hits have a solid blue frame, misses a dashed orange one.
    """
    model, view = views.readings[0]  # the figure shows one model
    rows = view["rows"]
    most = max((len(row["near"]) for row in rows), default=0)
    board = models.PictureBoard(max(len(rows), 1), 1 + GAP + most, title)
    for board_row, row in enumerate(rows):
        name = row["class"]
        short = textwrap.shorten(name, LETTERS, placeholder="…") if " " in name else name[:LETTERS]
        tip = f"{name}: the nearest image of its class is no. {row['rank']}"
        board.put((board_row, 0), row["query"], short, QUERY, tip)
        for number, near in enumerate(row["near"]):
            tip = f"{number + 1}: {near['class']}, {near['score']:.4f}"
            frame = HIT if near["hit"] else MISS
            position = (board_row, 1 + GAP + number)
            board.put(position, near["picture"], f"{near['score']:.2f}", frame, tip)
    failed = sum(row["failed"] for row in rows)
    caption = (
        f"{model.describe()}, {views.protocol}, {views.options.split} images. At the left the "
        "query, then the nearest images with their scores: a solid blue frame is a hit (of the "
        f"query's class), a dashed orange one a miss. {len(rows) - failed} queries are random"
        + (f"; the last {failed} are the hardest failures" if failed else "")
        + f". Of {view['looked_at']} queries looked at, {view['failing']} find a miss first."
    )
    return models.Picture(board.drawing, caption, board.spots)
