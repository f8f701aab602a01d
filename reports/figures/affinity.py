"""Similar classes: cosines between proxies, one panel per cell, on one scale."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models
from reports.tables.labels import format_number

LIKEST = 10  # pairs that tell themselves, a panel


class AffinityOptions(models.ModelOptions):
    """Options of `affinity`: cosines between the proxies of training classes.

    classes: their largest number.
    """

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    classes: int = Field(60, ge=3, le=200)


@models.register_model_figure(AffinityOptions, "classes that are alike")
def affinity(views: models.Views, title: str) -> models.Picture:
    """Draw heatmaps of cosines; each panel orders its classes so that similar ones are neighbours.

    Example:
        >>> Figure(kind="affinity", studies=("terms",)).metric
        'val/map_at_r'
    """
    matrices = [np.asarray(view["cosines"]) for _, view in views.readings]
    off = [matrix[~np.eye(len(matrix), dtype=bool)] for matrix in matrices]
    low, high = min(cosines.min() for cosines in off), max(cosines.max() for cosines in off)
    spots: list[plot.Tooltip] = []
    heads = [f"mean {format_number(view['mean'], 3)}" for _, view in views.readings]
    drawing, panels = models.create_model_panels(
        views, title, heads, width=plot.WIDTH + 0.5, room=0.3
    )
    for panel, matrix, (model, view) in zip(panels, matrices, views.readings, strict=True):
        picture = panel.imshow(matrix, vmin=low, vmax=high, cmap="cividis", interpolation="nearest")
        names, above = view["classes"], np.triu_indices(len(matrix), 1)
        for at in np.argsort(-matrix[above], kind="stable")[:LIKEST]:
            row, column = int(above[0][at]), int(above[1][at])
            words = f"{model.cell}: {names[row]}, {names[column]}: {matrix[row, column]:.3f}"
            spots.append(plot.Tooltip(panel, column, row, words))
    drawing.colorbar(picture, ax=drawing.axes, shrink=0.7, label="cosine")
    view = views.readings[0][1]
    caption = (
        f"Cosines between {view['of']} of {len(view['classes'])} of {view['of_classes']} "
        "training classes, the first seed of each cell; like ones side by side, in an order of "
        "each panel's own, all on one scale. Mean: of two classes."
    )
    return models.Picture(drawing, caption, spots)
