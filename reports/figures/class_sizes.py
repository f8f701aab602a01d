"""How well images of large and of small classes are found (DDML's supplement)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

import reports.figures.drawn as plot
from reports.figures.models import ModelOptions, Picture, Views, model_figure
from reports.tables.labels import greek

GROUPS = 3  # of classes, from the smallest to the largest


class ClassSizesOptions(ModelOptions):
    """Of `class_sizes`: how many images of a class find one of it first, against how many there
    are (DDML's supplement)."""

    every: ClassVar[bool] = True
    split: Literal["train", "val", "test"] = "train"


@model_figure(ClassSizesOptions, "small classes and large ones")
def class_sizes(views: Views, title: str) -> Picture:
    """Draw a dot a class and cell; lines through the means of equal groups of classes by size."""
    drawing, panel = plot.single(title)
    split = views.options.split
    caption = (
        f"Of each class of the {split} split the share of its images whose nearest "
        f"other one is of it, {views.protocol}, the first seed of each cell, against the images "
        f"{'trained on' if split == 'train' else 'there are'}; lines: means of up to "
        f"{GROUPS} groups of as many classes, by size. Of a larger class there is more to be found."
    )
    spots = []
    for at, (each, view) in enumerate(views.found):
        colour, dash = plot.line_style(at)
        y = [100 * recall for recall in view["recalls"]]
        panel.scatter(view["sizes"], y, s=14, color=colour, alpha=0.35, linewidths=0)
        sizes, means = zip(*groups(view), strict=True)
        line: dict[str, Any] = {"color": colour, "linestyle": dash, "marker": "o", "markersize": 5}
        panel.plot(sizes, [100 * mean for mean in means], label=greek(each.cell), **line)
        for name, size, share in zip(view["classes"], view["sizes"], y, strict=True):
            words = f"{each.cell}, {name}: {size} images, {share:.1f} %"
            spots.append(plot.Spot(panel, size, share, words))
        caption += f" {each.cell}: {', '.join(f'{100 * mean:.1f}' for mean in means)} %."
    panel.set_xscale("log")
    known = [size for _, view in views.found for size in view["sizes"]]
    if min(known) < max(known):
        plot.log_ticks(panel, min(known), max(known))
    panel.set_xlabel("images of a class")
    panel.set_ylabel("Recall@1 within the split (%)")
    plot.lined(panel)
    plot.legend(panel, len(views.found))
    return Picture(drawing, caption, tuple(spots))


def groups(view: dict[str, list[float]]) -> list[tuple[float, float]]:
    """Return mean size and mean recall of equal groups of classes, the smallest classes first; one
    group where all classes have as many images."""
    sizes, recalls = np.asarray(view["sizes"], float), np.asarray(view["recalls"], float)
    order = np.argsort(sizes, kind="stable")
    parts = min(GROUPS, len(np.unique(sizes)))
    return [
        (float(sizes[places].mean()), float(recalls[places].mean()))
        for places in np.array_split(order, parts)
    ]
