"""Where in images the terms of a loss are lowered."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import Drawn, Spot, empty, style
from reports.figures.models.seen import Picture, Views, views
from reports.figures.models.strips import board, overlay, place
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

FRAME = ("black", "-")


def grad_cam(frame: Frame, recipe: Figure) -> Drawn:
    """A column an image; below it a row a term, bright where the term is lowered."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: where terms look"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    for each, view in told.found:
        grid = np.asarray(view["rows"][0]["maps"][view["terms"][0]])
        caption = (
            f"{told.who(each)}: Grad-CAM of {', '.join(view['terms'])} on training images, of the "
            f"last map of {grid.shape[0]} × {grid.shape[1]} places; bright where it lowers the "
            "term, each on a scale of its own."
        )
    return Picture(figure, caption, spots, apart=True).of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    if not told.found or not told.found[0][1]["rows"]:
        figure, panel = board(1, 6, title)
        empty(panel, "nothing was read")
        return figure, ()
    view = told.found[0][1]
    figure, panel = board(1 + len(view["terms"]), max(len(view["rows"]), 4), title)
    spots = []
    for column, row in enumerate(view["rows"]):
        x, y = place(panel, (0, column), row["picture"], row["class"][:12], FRAME)
        spots.append(Spot(panel, x, y, row["class"]))
        for at, term in enumerate(view["terms"], 1):
            cam = np.asarray(row["maps"][term])
            x, y = place(panel, (at, column), row["picture"], term, FRAME)
            overlay(panel, (x, y), row["picture"], cam)
            flat = "" if cam.any() else ", which nothing in it lowers"
            spots.append(Spot(panel, x, y, f"{row['class']}: {term}{flat}"))
    return figure, tuple(spots)
