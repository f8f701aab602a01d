"""Between two classes: where a model is unsure, and where unseen images lie (DDML, Fig. 1b)."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import COLOURS, WIDTH, Drawn, Spot, empty, heading, style, title_panel
from reports.figures.models.seen import Picture, Views, views
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

ACROSS = 2  # panels
GREY = "#5f5f5f"
SURE = LinearSegmentedColormap.from_list("sure", [COLOURS[1], "white", COLOURS[0]])


def plane(frame: Frame, recipe: Figure) -> Drawn:
    """A panel a cell: a ring whose colour says which class a direction is taken for, white where
    neither; within it images of both classes, and grey ones of a class that was never seen."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: between two classes"
    with style():
        figure, spots = _figure(told, title)
    caption = "Nothing was read."
    if told.found:
        level = 100 * told.found[0][1]["options"]["level"]
        caption = (
            f"The plane of the proxies (stars) of the two training classes that are most alike, "
            f"{told.protocol}, the first seed of each cell: of each direction the probability of "
            f"the one against the other; images of both, grey of the {told.options.split} class "
            f"nearest to them. Unsure: the share of the directions between the proxies in which "
            f"neither has {level:g} %."
        )
    for each, view in told.found:
        one, two, unseen = view["classes"]
        caption += (
            f" {each.cell}: {one} against {two}, grey {unseen}; unsure {100 * view['unsure']:.1f} %"
            f" of {view['angle']:.1f}°"
            + ("." if view["dimensions"] == 2 else f", of {view['dimensions']} dimensions.")
        )
    return Picture(figure, caption, spots).of(recipe, told, title)


def _figure(told: Views, title: str) -> tuple[Canvas, tuple[Spot, ...]]:
    count = max(len(told.found), 1)
    across = min(ACROSS, count)
    down = math.ceil(count / across)
    side = WIDTH / across
    figure = Canvas(figsize=(WIDTH, 0.4 + down * (side + 0.35)), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    heading(figure, title)
    spots: list[Spot] = []
    for panel in panels:
        panel.set_axis_off()
    if not told.found:
        empty(panels[0], "nothing was read")
        return figure, ()
    for panel, (each, view) in zip(panels, told.found, strict=False):
        title_panel(panel, f"{greek(each.cell)}: unsure {100 * view['unsure']:.1f} %", side)
        _ring(panel, view["sure"])
        edges = (COLOURS[0], COLOURS[1], GREY)
        for name, points, colour, mark in zip(
            view["classes"], view["points"], edges, "osD", strict=True
        ):
            x, y = zip(*points, strict=True)
            panel.scatter(x, y, s=14, color=colour, marker=mark, alpha=0.75, linewidths=0)
            spots += [Spot(panel, float(a), float(b), f"{each.cell}: {name}") for a, b in points]
        for (x, y), colour in zip(view["proxies"], edges[:2], strict=True):
            panel.plot(x, y, "*", color=colour, markersize=12, markeredgecolor="black")
        panel.set_aspect("equal")
        panel.set_xlim(-1.3, 1.3)
        panel.set_ylim(-1.3, 1.3)
    return figure, tuple(spots)


def _ring(panel: Axes, sure: list[float]) -> None:
    """Just outside the unit circle, a wedge a direction."""
    turns = np.linspace(0, 2 * np.pi, len(sure) + 1) - np.pi / len(sure)
    inner, outer = (r * np.stack([np.cos(turns), np.sin(turns)]) for r in (1.06, 1.24))
    x, y = (np.stack([inner[at], outer[at]]) for at in (0, 1))
    panel.pcolormesh(
        x, y, np.asarray(sure)[None], cmap=SURE, vmin=0, vmax=1, shading="flat", rasterized=True
    )
    panel.plot(*np.stack([np.cos(turns), np.sin(turns)]), color="#c8c8c8", linewidth=0.7)
