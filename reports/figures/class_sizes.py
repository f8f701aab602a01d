"""Recall of classes with many and with few images (DDML's supplement)."""

from typing import ClassVar, Literal

import numpy as np

import reports.figures.figure as plot
from reports.figures import models
from reports.tables.labels import replace_greek_names

GROUPS = 3  # of classes, from the smallest to the largest


class ClassSizesOptions(models.ModelOptions):
    """Options of `class_sizes`, Recall@1 of a class over its size (DDML's supplement)."""

    every: ClassVar[bool] = True
    split: Literal["train", "val", "test"] = "train"


@models.register_model_figure(ClassSizesOptions, "small classes and large ones")
def class_sizes(views: models.Views, title: str) -> models.Picture:
    """Draw Recall@1 of each class over its number of images: a dot per class, a line per model.

    A line joins the means of up to three groups of classes, small classes first.
    """
    drawing, panel = plot.create_single_panel(title)
    split = views.options.split
    caption = (
        f"For each class of the {split} split, the share of its images whose nearest other image "
        f"is of the same class, {views.protocol}, the first seed of each cell, against the number "
        f"of images{' trained on' if split == 'train' else ''}; lines: means of up to {GROUPS} "
        "equally large groups of classes, by size. A larger class offers more images to be found."
    )
    spots = []
    for i, (model, view) in enumerate(views.readings):
        line = plot.select_line_style(i)
        y = [100 * recall for recall in view["recalls"]]
        panel.scatter(view["sizes"], y, s=14, color=line["color"], alpha=0.35, linewidths=0)
        sizes, means = average_groups(view["sizes"], y)
        label = replace_greek_names(model.cell)
        panel.plot(sizes, means, marker="o", markersize=5, label=label, **line)
        for name, size, share in zip(view["classes"], view["sizes"], y, strict=True):
            text = f"{model.cell}, {name}: {size} images, {share:.1f} %"
            spots.append(plot.Tooltip(panel, size, share, text))
        caption += f" {model.cell}: {', '.join(f'{mean:.1f}' for mean in means)} %."
    sizes = [size for _, view in views.readings for size in view["sizes"]]
    panel.set(xscale="log", xlabel="images of a class", ylabel="Recall@1 within the split (%)")
    if min(sizes) < max(sizes):
        plot.set_log_ticks(panel, min(sizes), max(sizes))
    panel.grid()
    plot.draw_legend(panel, len(views.readings))
    return models.Picture(drawing, caption, spots)


def average_groups(sizes: list[int], recalls: list[float]) -> tuple[list[float], list[float]]:
    """Return mean sizes and mean recalls of equally large groups of classes, small classes first.

    There are at most `GROUPS` groups, and no more than there are distinct sizes.
    """
    groups = np.array_split(np.argsort(sizes, kind="stable"), min(GROUPS, len(set(sizes))))
    mean_sizes = [float(np.asarray(sizes)[group].mean()) for group in groups]
    return mean_sizes, [float(np.asarray(recalls)[group].mean()) for group in groups]
