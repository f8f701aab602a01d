"""A map of the embedding space in two dimensions, with pictures at some points."""

from typing import Any

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models

MARKERS = "osv"  # with eight colours 24 kinds of points, one for each class drawn
ZOOM = 0.28  # of a picture's own size


class MapOptions(models.ModelOptions):
    """Options of `embedding_map`, by t-SNE.

    classes: number of classes drawn.
    points: largest number of their images.
    pictures: number of images shown.
    perplexity: approximate number of neighbours of a point.
    centred: subtract class means first, which shows how images of one class differ
        (DVML, Fig. 1).
    """

    classes: int = Field(12, ge=1, le=24)
    points: int = Field(600, ge=4, le=5000)
    pictures: int = Field(40, ge=0, le=200)
    perplexity: float = Field(30.0, ge=2, le=200)
    centred: bool = False


@models.register_model_figure(MapOptions, "the embedding space", apart=True)
def embedding_map(views: models.Views, title: str) -> models.Picture:
    """Draw one point per image, with a colour and a marker for each class, and some pictures."""
    drawing, panel = plot.create_single_panel(title, plot.WIDTH)
    panel.set(xticks=[], yticks=[])
    model, view = views.readings[0]  # the figure shows one model
    names = view["classes"]
    x, y, label = (np.asarray(view[name]) for name in ("x", "y", "label"))
    colours = [plot.COLOURS[i % len(plot.COLOURS)] for i in range(len(names))]
    for i, name in enumerate(names):
        marker = MARKERS[i // len(plot.COLOURS)]
        style: Any = {"color": colours[i], "marker": marker, "linewidths": 0}
        panel.scatter(x[label == i], y[label == i], s=16, label=name, **style)
    for i, picture in view["pictures"]:
        models.put_thumbnail(panel, (x[i], y[i]), picture, ZOOM, colours[label[i]])
    panel.margins(0.06)
    plot.draw_legend(panel, max(len(names), 5))  # 5 lines: the legend is below the axes
    caption = (
        f"{model.describe()}, {views.protocol}: t-SNE of {len(x)} {views.options.split} "
        f"images of {len(names)} of {view['of_classes']} classes, perplexity "
        f"{view['options']['perplexity']:g}. The map shows which images are neighbours, but "
        "neither distances between groups nor their sizes."
    )
    points = zip(x, y, label, strict=True)
    spots = tuple(plot.Tooltip(panel, float(a), float(b), names[c]) for a, b, c in points)
    return models.Picture(drawing, caption, spots)
