"""The effect of one gradient step on a dark image and on its class (IDML, Fig. 7)."""

from typing import ClassVar, Literal

from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models

ZOOM = 0.4  # of a picture's own size
GREY = "#8a8a8a"
NAMED = (("dark image", plot.COLOURS[1]), ("its positive", plot.COLOURS[0]))


class SingleStepOptions(models.ModelOptions):
    """Options of `single_step`: embeddings before and after one gradient step (IDML, Fig. 7).

    images: number of images of the step, two of each class.
    rate: learning rate of the step.
    dark: factor by which the pixels of the first image are multiplied.
    """

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    images: int = Field(40, ge=6, le=200)
    rate: float = Field(0.1, gt=0)
    dark: float = Field(0.25, gt=0, le=1)


@models.register_model_figure(SingleStepOptions, "one gradient step", apart=True)
def single_step(views: models.Views, title: str) -> models.Picture:
    """Draw one panel per model: a line joins an image's embedding before and after one step.

    The first image, which is darkened, and the second, its positive, have colours and pictures.
    """
    first = views.readings[0][1]
    changes = [(model.cell, *view["distances"]) for model, view in views.readings]
    moves = ["{} {:.4f} to {:.4f}".format(*change) for change in changes]
    caption = (
        f"t-SNE of the embeddings of {len(first['label'])} training images before and after one "
        f"gradient step at rate {first['options']['rate']:g} of the trained model, the first seed "
        f"of each cell; the first image is shown with {100 * first['options']['dark']:g} % of its "
        "brightness. Euclidean distance between unit embeddings of this image and its positive, "
        f"before and after: {'; '.join(moves)}."
    )
    heads = ["{:.3f} to {:.3f}".format(*view["distances"]) for _, view in views.readings]
    drawing, panels = models.create_model_panels(views, title, heads)
    spots: list[plot.Tooltip] = []
    for panel, (model, view) in zip(panels, views.readings, strict=True):
        for i, (start, end) in enumerate(zip(view["before"], view["after"], strict=True)):
            # the dark image and its positive come first
            name, colour = NAMED[i] if i < 2 else (view["classes"][view["label"][i]], GREY)
            panel.plot(*start, "o", color=colour, markerfacecolor="white")
            panel.plot(*end, "o", color=colour)
            panel.plot(*zip(start, end, strict=True), color=colour, linewidth=1.0)
            text = f"{model.cell}, {name}: moved by {view['moved'][i]:.4f}"
            spots.append(plot.Tooltip(panel, end[0], end[1], text))
        starts = zip(NAMED, view["before"][:2], view["pictures"], strict=True)
        for (_, colour), start, picture in starts:
            above = {"xybox": (0, 18), "boxcoords": "offset points"}
            models.put_thumbnail(panel, start, picture, ZOOM, colour, **above)
        panel.margins(0.12)
    return models.Picture(drawing, caption, spots)
