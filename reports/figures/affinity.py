"""Similar classes: cosines between proxies, one panel per cell, on one scale."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models
from reports.tables.labels import format_number

MAX_PAIRS = 10  # pairs of a panel with tooltips, the most similar ones


class AffinityOptions(models.ModelOptions):
    """Options of `affinity`: cosines between the proxies of training classes.

    classes: their largest number.
    """

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    classes: int = Field(60, ge=3, le=200)


@models.register_model_figure(AffinityOptions, "classes that are alike")
def affinity(views: models.Views, title: str) -> models.Picture:
    """Draw a heatmap per model: cosines between class proxies, similar classes side by side."""
    matrices = [np.asarray(view["cosines"]) for _, view in views.readings]
    # one scale for all panels, from the cosines off the diagonals
    cosines = np.concatenate([matrix[~np.eye(len(matrix), dtype=bool)] for matrix in matrices])
    scale = {"vmin": cosines.min(), "vmax": cosines.max()}
    spots: list[plot.Tooltip] = []
    heads = [f"mean {format_number(view['mean'], 3)}" for _, view in views.readings]
    drawing, panels = models.create_model_panels(views, title, heads)
    for panel, matrix, (model, view) in zip(panels, matrices, views.readings, strict=True):
        image = panel.imshow(matrix, cmap="cividis", interpolation="nearest", **scale)
        names, (rows, columns) = view["classes"], np.triu_indices(len(matrix), 1)  # all pairs
        for i in np.argsort(-matrix[rows, columns], kind="stable")[:MAX_PAIRS]:
            row, column = int(rows[i]), int(columns[i])
            text = f"{model.cell}: {names[row]}, {names[column]}: {matrix[row, column]:.3f}"
            spots.append(plot.Tooltip(panel, column, row, text))
    drawing.colorbar(image, ax=drawing.axes, shrink=0.7, label="cosine")
    view = views.readings[0][1]
    caption = (
        f"Cosines between {view['of']} of {len(view['classes'])} of {view['of_classes']} "
        "training classes, the first seed of each cell. Similar classes are side by side, so each "
        "panel has another order; all panels have one scale. Mean: over all pairs of classes."
    )
    return models.Picture(drawing, caption, spots)
