"""Grad-CAM: where in images the terms of a loss decrease."""

from typing import Literal

import numpy as np
from pydantic import Field

from reports.figures import models

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
def grad_cam(views: models.Views, title: str) -> models.Picture:
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
    return models.Picture(board.drawing, caption, board.spots)
