"""How uncertain a model is of images, and the most and least certain ones (IDML, Fig. 6 and 8)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import COLOURS, Drawn, Spot, empty, style
from reports.figures.models.seen import Picture, Views, views
from reports.figures.models.strips import LETTERS, board, place
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

BINS = 40
HISTOGRAM = 1.6  # inches
GAPS = "_gap"  # how measures that are differences end: on another scale


def uncertainty(frame: Frame, recipe: Figure) -> Drawn:
    """Above a histogram of each thing measured, below the images at both ends of the first."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: uncertainty"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    for each, view in told.found:
        values = view["values"]
        first = next(iter(values))
        caption = (
            f"{told.who(each)}, {told.protocol}: {len(values[first])} {told.options.split} images. "
            f"Above: {', '.join(_words(name) for name in values)}. Below: the images of least "
            f"{_words(first)}, then those of most."
        )
    return Picture(figure, caption, spots, apart=True).of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    if not told.found:
        figure, panel = board(1, 6, title)
        empty(panel, "nothing was read")
        return figure, ()
    view = told.found[0][1]
    columns = max(len(view["low"]), len(view["high"]))
    figure, panel = board(2, columns, title)
    spots = []
    for row, (name, dash) in enumerate((("low", "-"), ("high", "--"))):
        for at, shown in enumerate(view[name]):
            words = f"{shown['value']:.3g}"
            x, y = place(panel, (row, at), shown["picture"], words, (COLOURS[row], dash))
            spots.append(Spot(panel, x, y, f"{shown['class']}: {shown['value']:.4g}"))
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + HISTOGRAM)
    grid = figure.add_gridspec(2, 1, height_ratios=[HISTOGRAM, 2 * (1 + LETTERS) * width / columns])
    panel.set_subplotspec(grid[1])
    top = figure.add_subplot(grid[0])
    alike = {k: np.asarray(v) for k, v in view["values"].items() if not k.endswith(GAPS)}
    edges = np.histogram_bin_edges(np.concatenate(list(alike.values())), BINS)
    for at, (name, values) in enumerate(alike.items()):
        counts, _ = np.histogram(values, edges)
        top.stairs(counts, edges, fill=True, color=COLOURS[at], alpha=0.45, label=_words(name))
    top.set_ylabel("images")
    top.legend(loc="best")
    return figure, tuple(spots)


def _words(name: str) -> str:
    return name.replace("_", " ")
