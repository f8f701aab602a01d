"""Images between two classes: where a model is unsure, where unseen images lie (DDML, Fig. 1b)."""

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models

GREY = "#5f5f5f"


class PlaneOptions(models.ModelOptions):
    """Options of `plane`, through the proxies of two training classes (DDML, Fig. 1b).

    images: number of each class.
    level: the probability that a class must reach for a direction to count as sure.
    """

    every: ClassVar[bool] = True
    split: Literal["val", "test"] = "test"
    images: int = Field(60, ge=1, le=500)
    level: float = Field(0.9, gt=0.5, lt=1)


@models.register_model_figure(PlaneOptions, "between two classes")
def plane(views: models.Views, title: str) -> models.Picture:
    """Draw one panel per cell: the unit circle through the proxies of two training classes.

    A ring around the circle has in each direction the colour of the more probable class, paler if
    that class is less sure. Dots are images of both classes and, in grey, of an unseen class.
    """
    level = 100 * views.readings[0][1]["options"]["level"]
    caption = (
        f"The plane of the proxies (stars) of the two training classes that are most alike, "
        f"{views.protocol}, the first seed of each cell. Ring: the probability of one class "
        f"against the other in each direction. Dots: images of both classes, grey those of the "
        f"{views.options.split} class nearest to the two. Unsure: the share of the directions "
        f"between the proxies in which neither class has a probability of {level:g} %."
    )
    heads = [f"unsure {100 * view['unsure']:.1f} %" for _, view in views.readings]
    drawing, panels = models.create_model_panels(views, title, heads)
    spots: list[plot.Tooltip] = []
    edges = (plot.COLOURS[0], plot.COLOURS[1], GREY)
    for panel, (model, view), head in zip(panels, views.readings, heads, strict=True):
        _draw_ring(panel, view["sure"])
        marks = zip(view["classes"], view["points"], edges, "osD", strict=True)
        for name, points, colour, mark in marks:
            x, y = zip(*points, strict=True)
            panel.scatter(x, y, s=14, color=colour, marker=mark, alpha=0.75, linewidths=0)
            spots += [plot.Tooltip(panel, a, b, f"{model.cell}: {name}") for a, b in points]
        for (x, y), colour in zip(view["proxies"], edges[:2], strict=True):
            panel.plot(x, y, "*", color=colour, markersize=12, markeredgecolor="black")
        panel.set(aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        panel.set_axis_off()
        one, two, unseen = view["classes"]
        space = "" if view["dimensions"] == 2 else f", of {view['dimensions']} dimensions"
        caption += (
            f" {model.cell}: {one} against {two}, grey {unseen}; {head} of "
            f"{view['angle']:.1f}°{space}."
        )
    return models.Picture(drawing, caption, spots)


def _draw_ring(panel: plot.Axes, sure: list[float]) -> None:
    """Draw a ring outside the unit circle, in each direction in the colour of the likelier class.

    sure: for each direction the probability of the first class; at 0.5 the ring is white.
    """
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("sure", [plot.COLOURS[1], "white", plot.COLOURS[0]])
    angles = np.linspace(0, 2 * np.pi, len(sure) + 1) - np.pi / len(sure)  # between directions
    circle = np.stack([np.cos(angles), np.sin(angles)])
    ring = np.stack([1.06 * circle, 1.24 * circle], axis=1)  # inner and outer edge
    shade: dict[str, Any] = {"cmap": colours, "vmin": 0, "vmax": 1, "shading": "flat"}
    panel.pcolormesh(*ring, np.asarray(sure)[None], rasterized=True, **shade)
    panel.plot(*circle, color="#c8c8c8", linewidth=0.7)
