"""Which classes a model holds for alike: cosines between proxies, a panel a cell, on one scale."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import WIDTH, Drawn, Spot, empty, heading, style, title_panel
from reports.figures.models.seen import Picture, Views, views
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek, number

ACROSS = 2  # panels
LIKEST = 10  # pairs that tell themselves, a panel


def affinity(frame: Frame, recipe: Figure) -> Drawn:
    """Heatmaps of cosines; like classes stand side by side, in each panel in its own order."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: classes that are alike"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    if told.found:
        view = told.found[0][1]
        caption = (
            f"Cosines between {view['of']} of {len(view['classes'])} of {view['of_classes']} "
            "training classes, the first seed of each cell; like ones side by side, in an order of "
            "each panel's own, all on one scale. Mean: of two classes."
        )
    return Picture(figure, caption, spots).of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    count = max(len(told.found), 1)
    across = min(ACROSS, count)
    down = math.ceil(count / across)
    side = WIDTH / across
    figure = Canvas(figsize=(WIDTH + 0.5, 0.4 + down * (side + 0.3)), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    heading(figure, title)
    for panel in panels[count if told.found else 1 :]:
        panel.set_axis_off()
    if not told.found:
        empty(panels[0], "nothing was read")
        return figure, ()
    matrices = [np.asarray(view["cosines"]) for _, view in told.found]
    off = [matrix[~np.eye(len(matrix), dtype=bool)] for matrix in matrices]
    low, high = min(each.min() for each in off), max(each.max() for each in off)
    spots: list[Spot] = []
    for panel, matrix, (each, view) in zip(panels, matrices, told.found, strict=False):
        shown = panel.imshow(matrix, vmin=low, vmax=high, cmap="cividis", interpolation="nearest")
        title_panel(panel, f"{greek(each.cell)}: mean {number(view['mean'], 3)}", side)
        panel.set_xticks([])
        panel.set_yticks([])
        names, above = view["classes"], np.triu_indices(len(matrix), 1)
        for at in np.argsort(-matrix[above], kind="stable")[:LIKEST]:
            row, column = int(above[0][at]), int(above[1][at])
            words = f"{each.cell}: {names[row]}, {names[column]}: {matrix[row, column]:.3f}"
            spots.append(Spot(panel, column, row, words))
    figure.colorbar(shown, ax=list(panels), shrink=0.7, label="cosine")
    return figure, tuple(spots)
