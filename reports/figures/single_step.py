"""What one gradient step does to a dark image and to its class (IDML, Fig. 7)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

import reports.figures.figure as plot
from reports.figures.models import (
    ModelOptions,
    Picture,
    Views,
    create_model_panels,
    put_thumbnail,
    register_model_figure,
)

SMALL = 0.4  # of a picture's own size
GREY = "#8a8a8a"
NAMED = (("dark image", plot.COLOURS[1]), ("its positive", plot.COLOURS[0]))


class SingleStepOptions(ModelOptions):
    """Of `single_step`: embeddings before and after one gradient step (IDML, Fig. 7). images: of
    the step, two of a class. rate: of the step. dark: what the first one's pixels are times."""

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    images: int = Field(40, ge=6, le=200)
    rate: float = Field(0.1, gt=0)
    dark: float = Field(0.25, gt=0, le=1)


@register_model_figure(SingleStepOptions, "one gradient step", apart=True)
def single_step(views: Views, title: str) -> Picture:
    """Draw a panel a cell: a line an image from its embedding before the step to that after it."""
    view, options = views.found[0][1], views.found[0][1]["options"]
    moves = [
        "{} {:.4f} to {:.4f}".format(each.cell, *read["distances"]) for each, read in views.found
    ]
    caption = (
        f"t-SNE of the embeddings of {len(view['label'])} training images before and after one "
        f"gradient step at rate {options['rate']:g} of the trained model, the first seed of "
        f"each cell; the first image is shown with {100 * options['dark']:g} % of its "
        "brightness. Euclidean distance of unit embeddings from it to its positive, before and "
        f"after: {'; '.join(moves)}."
    )
    heads = ["{:.3f} to {:.3f}".format(*read["distances"]) for _, read in views.found]
    drawing, panels = create_model_panels(views, title, heads)
    spots: list[plot.Tooltip] = []
    for panel, (each, view) in zip(panels, views.found, strict=True):
        for at, (start, end) in enumerate(zip(view["before"], view["after"], strict=True)):
            name, colour = NAMED[at] if at < 2 else (view["classes"][view["label"][at]], GREY)
            panel.plot(*start, "o", color=colour, markerfacecolor="white")
            panel.plot(*end, "o", color=colour)
            panel.plot(*zip(start, end, strict=True), color=colour, linewidth=1.0)
            words = f"{each.cell}, {name}: moved by {view['moved'][at]:.4f}"
            spots.append(plot.Tooltip(panel, end[0], end[1], words))
        for (_, colour), place, picture in zip(
            NAMED, view["before"][:2], view["pictures"], strict=True
        ):
            above = {"xybox": (0, 18), "boxcoords": "offset points"}
            put_thumbnail(panel, place, picture, SMALL, colour, **above)
        panel.margins(0.12)
    return Picture(drawing, caption, tuple(spots))
