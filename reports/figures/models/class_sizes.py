"""How well images of large and of small classes are found (DDML's supplement)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import (
    COLOURS,
    DASHES,
    HEIGHT,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    legend,
    lined,
    log_ticks,
    style,
)
from reports.figures.models.seen import Picture, Views, views
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.labels import greek

GROUPS = 3  # of classes, from the smallest to the largest


def class_sizes(frame: Frame, recipe: Figure) -> Drawn:
    """A dot a class and cell; lines through the means of equal groups of classes by size."""
    study, told = recipe.studies[0], views(frame, recipe)
    title = greek(recipe.title) or f"{study}: small classes and large ones"
    with style():
        figure = Canvas(figsize=(WIDTH, HEIGHT), layout="constrained")
        panel = figure.add_subplot()
        heading(panel, title)
        spots = _dots(panel, told)
    caption = (
        f"Of each class of the {told.options.split} split the share of its images whose nearest "
        f"other one is of it, {told.protocol}, the first seed of each cell, against the images "
        f"{'trained on' if told.options.split == 'train' else 'there are'}; lines: means of up to "
        f"{GROUPS} groups of as many classes, by size. Of a larger class there is more to be found."
    )
    for each, view in told.found:
        caption += f" {each.cell}: {', '.join(f'{100 * mean:.1f}' for _, mean in groups(view))} %."
    return Picture(figure, caption, tuple(spots)).of(recipe, told, title)


def groups(view: dict[str, list[float]]) -> list[tuple[float, float]]:
    """Mean size and mean recall of equal groups of classes, the smallest classes first; one group
    where all classes have as many images."""
    sizes, recalls = np.asarray(view["sizes"], float), np.asarray(view["recalls"], float)
    order = np.argsort(sizes, kind="stable")
    parts = min(GROUPS, len(np.unique(sizes)))
    return [
        (float(sizes[places].mean()), float(recalls[places].mean()))
        for places in np.array_split(order, parts)
    ]


def _dots(panel: Axes, told: Views) -> list[Spot]:
    if not told.found:
        empty(panel, "nothing was read")
        return []
    spots = []
    for at, (each, view) in enumerate(told.found):
        colour, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
        y = [100 * recall for recall in view["recalls"]]
        panel.scatter(view["sizes"], y, s=14, color=colour, alpha=0.35, linewidths=0)
        means = groups(view)
        panel.plot(
            [size for size, _ in means],
            [100 * mean for _, mean in means],
            color=colour,
            linestyle=dash,
            marker="o",
            markersize=5,
            label=greek(each.cell),
        )
        for name, size, share in zip(view["classes"], view["sizes"], y, strict=True):
            spots.append(
                Spot(panel, size, share, f"{each.cell}, {name}: {size} images, {share:.1f} %")
            )
    panel.set_xscale("log")
    known = [size for _, view in told.found for size in view["sizes"]]
    if min(known) < max(known):
        log_ticks(panel, min(known), max(known))
    panel.set_xlabel("images of a class")
    panel.set_ylabel("Recall@1 within the split (%)")
    lined(panel)
    legend(panel, len(told.found))
    return spots
