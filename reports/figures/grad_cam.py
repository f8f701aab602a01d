"""Where in images the terms of a loss are lowered."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures.models import (
    ModelOptions,
    Picture,
    Views,
    create_picture_board,
    put_picture,
    register_model_figure,
)

FRAME = ("black", "-")


class GradCamOptions(ModelOptions):
    """Of `grad_cam`: where in training images terms of the loss are lowered (DDML, Fig. 3).

    images: so many, of a class each. terms: by name; default: all that the trial has."""

    split: Literal["train"] = "train"
    images: int = Field(6, ge=1, le=12)
    terms: tuple[str, ...] = Field((), max_length=6)


@register_model_figure(GradCamOptions, "where terms look", apart=True)
def grad_cam(views: Views, title: str) -> Picture:
    """Draw a column an image; below it a row a term, bright where the term is lowered."""
    each, view = views.found[0]
    terms, rows = view["terms"], view["rows"]
    drawing, panel = create_picture_board(1 + len(terms), max(len(rows), 4), title)
    spots = []
    for column, row in enumerate(rows):
        name = row["class"]
        middle = put_picture(panel, (0, column), row["picture"], name[:12], FRAME)
        spots.append(plot.Tooltip(panel, *middle, name))
        for at, term in enumerate(terms, 1):
            cam = np.asarray(row["maps"][term])
            middle = put_picture(panel, (at, column), row["picture"], term, FRAME, heat=cam)
            flat = "" if cam.any() else ", which nothing in it lowers"
            spots.append(plot.Tooltip(panel, *middle, f"{name}: {term}{flat}"))
    tall, wide = cam.shape
    caption = (
        f"{views.describe_model(each)}: Grad-CAM of {', '.join(terms)} on training images, of the "
        f"last map of {tall} × {wide} places; bright where it lowers the term, each on a scale of "
        "its own."
    )
    return Picture(drawing, caption, tuple(spots))
