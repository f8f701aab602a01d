"""The embedding space on a plane, with pictures where images lie."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

from reports.figures.drawn import COLOURS, WIDTH, Drawn, Spot, empty, heading, legend, style
from reports.figures.models.seen import Picture, Views, pixels, views
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

SIGNS = "osv^D"  # with the colours 40 kinds of points
LISTED = 24  # classes in a legend
SMALL = 0.28  # of a picture's own size


def embedding_map(frame: Frame, recipe: Figure) -> Drawn:
    """A point an image, a colour and sign a class; pictures of some beside."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: the embedding space"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    for each, view in told.found:
        caption = (
            f"{told.who(each)}, {told.protocol}: t-SNE of {len(view['x'])} {told.options.split} "
            f"images of {len(view['classes'])} of {view['of_classes']} classes, perplexity "
            f"{view['options']['perplexity']:g}. Which images are neighbours can be read from it; "
            "distances between groups and their sizes cannot."
        )
    return Picture(figure, caption, spots, apart=True).of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    figure = Canvas(figsize=(WIDTH, WIDTH), layout="constrained")
    panel = figure.add_subplot()
    heading(panel, title)
    panel.set_xticks([])
    panel.set_yticks([])
    if not told.found:
        empty(panel, "nothing was read")
        return figure, ()
    view = told.found[0][1]
    x, y, label = (np.asarray(view[name]) for name in ("x", "y", "label"))
    for at, name in enumerate(view["classes"]):
        mine = label == at
        panel.scatter(
            x[mine],
            y[mine],
            s=16,
            color=COLOURS[at % len(COLOURS)],
            marker=SIGNS[at // len(COLOURS) % len(SIGNS)],
            linewidths=0,
            label=name,
        )
    for at, picture in view["pictures"]:
        image = OffsetImage(pixels(picture), zoom=SMALL)
        edge = COLOURS[int(label[at]) % len(COLOURS)]
        box = AnnotationBbox(image, (x[at], y[at]), pad=0.1, bboxprops={"edgecolor": edge})
        panel.add_artist(box)
    panel.margins(0.06)
    if len(view["classes"]) <= LISTED:
        legend(panel, max(len(view["classes"]), 5))
    names = view["classes"]
    return figure, tuple(
        Spot(panel, float(a), float(b), names[c]) for a, b, c in zip(x, y, label, strict=True)
    )
