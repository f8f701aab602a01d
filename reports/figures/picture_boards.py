"""Boards of pictures: what a model finds, where its terms look, what it is unsure of."""

import textwrap
from typing import Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models

GAP = 0.35  # between the query and its neighbours, in columns
# colour and dash of the frames
QUERY, HIT, MISS = ("black", "-"), (plot.COLOURS[0], "-"), (plot.COLOURS[1], "--")
NAME_LETTERS = 11  # of a class's name below a picture


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
def gallery(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw one row per query: the query, then its nearest images; the hardest queries come last.

    Hits have a solid blue frame, misses a dashed orange one.
    """
    model, view = views.readings[0]  # the figure shows one model
    rows = view["rows"]
    most = max((len(row["near"]) for row in rows), default=0)
    board = models.PictureBoard(max(len(rows), 1), 1 + GAP + most, title)
    for board_row, row in enumerate(rows):
        name = row["class"]
        words = textwrap.shorten(name, NAME_LETTERS, placeholder="…")
        words = words if " " in name else name[:NAME_LETTERS]
        tip = f"{name}: the nearest image of its class is no. {row['rank']}"
        board.put((board_row, 0), row["query"], words, QUERY, tip)
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
    return models.ModelDrawing(board.drawing, caption, board.spots)


FRAME = ("black", "-")


class GradCamOptions(models.ModelOptions):
    """Options of `grad_cam`: where in training images terms of the loss decrease (DDML, Fig. 3).

    images: number of images, each of another class.
    terms: names; default: all terms of the trial.
    """

    split: Literal["train"] = "train"
    images: int = Field(6, ge=1, le=12)
    terms: tuple[str, ...] = Field((), max_length=6)


@models.register_model_figure(GradCamOptions, "where terms look", apart=True)
def grad_cam(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw one column per image and one row per term, bright where pixels decrease it."""
    model, view = views.readings[0]  # the figure shows one model
    terms, rows = view["terms"], view["rows"]
    board = models.PictureBoard(1 + len(terms), max(len(rows), 4), title)  # 4: no huge pictures
    for column, row in enumerate(rows):
        name = row["class"]
        board.put((0, column), row["picture"], name[:12], FRAME, name)
        for i, term in enumerate(terms, 1):
            heat = np.asarray(row["maps"][term])
            note = "" if heat.any() else ", which does not depend on this image"
            tip = f"{name}: {term}{note}"
            board.put((i, column), row["picture"], term, FRAME, tip, heat=heat)
    height, width = heat.shape  # the same for all maps
    caption = (
        f"{model.describe()}: Grad-CAM of {', '.join(terms)} on training images, from the last "
        f"feature map ({height} × {width}); bright where the image lowers the term. Each map has "
        "its own scale."
    )
    return models.ModelDrawing(board.drawing, caption, board.spots)


BINS = 40
HISTOGRAM_HEIGHT = 1.6  # inches
DIFFERENCE = "_gap"  # end of the names of measures that are differences, on another scale


class UncertaintyOptions(models.ModelOptions):
    """Options of `uncertainty` (IDML, Fig. 6 and 8).

    images: number of measured images.
    ends: number shown of the most and of the least certain ones.
    """

    images: int = Field(1024, ge=2, le=20000)
    ends: int = Field(8, ge=1, le=16)


@models.register_model_figure(UncertaintyOptions, "uncertainty", apart=True)
def uncertainty(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw histograms of uncertainty measures, and images with extremes of the first."""
    model, view = views.readings[0]  # the figure shows one model
    columns = max(len(view["low"]), len(view["high"]))
    board = models.PictureBoard(2, columns, title)
    for row, (end, dash) in enumerate((("low", "-"), ("high", "--"))):
        for column, image in enumerate(view[end]):
            value, frame = image["value"], (plot.COLOURS[row], dash)
            tip = f"{image['class']}: {value:.4g}"
            board.put((row, column), image["picture"], f"{value:.3g}", frame, tip)
    # above the board: histograms of the measures that share one scale
    board.drawing.set_figheight(board.drawing.get_figheight() + HISTOGRAM_HEIGHT)
    heights = [HISTOGRAM_HEIGHT, 2 * (1 + models.LETTERS) * plot.WIDTH / columns]
    grid = board.drawing.add_gridspec(2, 1, height_ratios=heights)
    board.panel.set_subplotspec(grid[1])
    top = board.drawing.add_subplot(grid[0])
    measures = {k: v for k, v in view["values"].items() if not k.endswith(DIFFERENCE)}
    edges = np.histogram_bin_edges(np.concatenate(list(measures.values())), BINS)
    for i, (name, values) in enumerate(measures.items()):
        counts, _ = np.histogram(values, edges)
        label = name.replace("_", " ")
        top.stairs(counts, edges, fill=True, color=plot.COLOURS[i], alpha=0.45, label=label)
    top.set_ylabel("images")
    top.legend(loc="best")
    first = next(iter(view["values"]))
    measure_names = ", ".join(measures).replace("_", " ")
    caption = (
        f"{model.describe()}, {views.protocol}: {len(view['values'][first])} "
        f"{views.options.split} images. Above: {measure_names}. Below: the images "
        f"with the least {first.replace('_', ' ')}, then those with the most."
    )
    return models.ModelDrawing(board.drawing, caption, board.spots)
