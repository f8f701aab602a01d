"""Figures of the embedding space of trained models."""

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.figures import models
from reports.tables import labels
from reports.tables.labels import format_number, replace_greek_names

MAX_PAIRS = 10  # pairs of a panel with tooltips, the most similar ones


class AffinityOptions(models.ModelOptions):
    """Options of `affinity`: cosines between the proxies of training classes.

    classes: their largest number.
    """

    every: ClassVar[bool] = True
    split: Literal["train"] = "train"
    classes: int = Field(60, ge=3, le=200)


@models.register_model_figure(AffinityOptions, "classes that are alike")
def affinity(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw a heatmap per model: cosines between class proxies, similar classes side by side."""
    matrices = [np.asarray(view["cosines"]) for _, view in views.readings]
    # one scale for all panels, from the cosines off the diagonals
    cosines = np.concatenate([matrix[~np.eye(len(matrix), dtype=bool)] for matrix in matrices])
    scale = {"vmin": cosines.min(), "vmax": cosines.max()}
    spots: list[plot.Tooltip] = []
    heads = [f"mean {format_number(view['mean'], 3)}" for _, view in views.readings]
    drawing, panels = models.create_model_panels(views, title, heads)
    for panel, matrix, (model, view) in zip(panels, matrices, views.readings, strict=True):
        image = panel.imshow(matrix, cmap="cividis", interpolation="nearest", **scale)
        names, (rows, columns) = view["classes"], np.triu_indices(len(matrix), 1)  # all pairs
        for i in np.argsort(-matrix[rows, columns], kind="stable")[:MAX_PAIRS]:
            row, column = int(rows[i]), int(columns[i])
            text = f"{model.cell}: {names[row]}, {names[column]}: {matrix[row, column]:.3f}"
            spots.append(plot.Tooltip(panel, column, row, text))
    drawing.colorbar(image, ax=drawing.axes, shrink=0.7, label="cosine")
    view = views.readings[0][1]
    caption = (
        f"Cosines between {view['of']} of {len(view['classes'])} of {view['of_classes']} "
        "training classes, the first seed of each cell. Similar classes are side by side, so each "
        "panel has another order; all panels have one scale. Mean: over all pairs of classes."
    )
    return models.ModelDrawing(drawing, caption, spots)


GROUPS = 3  # of classes, from the smallest to the largest


class ClassSizesOptions(models.ModelOptions):
    """Options of `class_sizes`, Recall@1 of a class over its size (DDML's supplement)."""

    every: ClassVar[bool] = True
    split: Literal["train", "val", "test"] = "train"


@models.register_model_figure(ClassSizesOptions, "small classes and large ones")
def class_sizes(views: models.Views, title: str) -> models.ModelDrawing:
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
        spots += [
            plot.Tooltip(panel, size, share, f"{model.cell}, {name}: {size} images, {share:.1f} %")
            for name, size, share in zip(view["classes"], view["sizes"], y, strict=True)
        ]
        caption += f" {model.cell}: {', '.join(f'{mean:.1f}' for mean in means)} %."
    sizes = [size for _, view in views.readings for size in view["sizes"]]
    panel.set(xscale="log", xlabel="images of a class", ylabel="Recall@1 within the split (%)")
    if min(sizes) < max(sizes):
        plot.set_log_ticks(panel, min(sizes), max(sizes))
    panel.grid()
    plot.draw_legend(panel, len(views.readings))
    return models.ModelDrawing(drawing, caption, spots)


def average_groups(sizes: list[int], recalls: list[float]) -> tuple[list[float], list[float]]:
    """Return mean sizes and mean recalls of equally large groups of classes, small classes first.

    There are at most `GROUPS` groups, and no more than there are distinct sizes.
    """
    groups = np.array_split(np.argsort(sizes, kind="stable"), min(GROUPS, len(set(sizes))))
    mean_sizes = [float(np.asarray(sizes)[group].mean()) for group in groups]
    return mean_sizes, [float(np.asarray(recalls)[group].mean()) for group in groups]


PANEL_HEIGHT = 1.7  # inches, of one model's histogram
KINDS = (("one class", "intra", plot.COLOURS[0]), ("two classes", "inter", plot.COLOURS[1]))


class DistanceOptions(models.ModelOptions):
    """Options of `distances` within classes and between them.

    images: largest number of images, in whole classes.
    """

    every: ClassVar[bool] = True
    images: int = Field(3000, ge=4, le=20000)


@models.register_model_figure(DistanceOptions, "distances within and between classes")
def distances(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw two histograms per model: distances between images of one class, and of two classes."""
    count = len(views.readings)
    drawing = plot.create_canvas(plot.WIDTH, 0.7 + PANEL_HEIGHT * count)
    panels = drawing.subplots(count, 1, sharex=True, squeeze=False).ravel()
    plot.draw_heading(drawing, title)
    spots = []
    for panel, (model, view) in zip(panels, views.readings, strict=True):
        for (label, name, colour), mean in zip(KINDS, view["means"], strict=True):
            shares = [100 * share for share in view[name]]
            panel.stairs(shares, view["edges"], fill=True, color=colour, alpha=0.45, label=label)
            panel.axvline(mean, color=colour, linewidth=1.2)
            text = f"{model.cell}, {label}: mean {mean:.4f}"
            spots.append(plot.Tooltip(panel, mean, max(shares) / 2, text))
        head = f"{labels.replace_greek_names(model.cell)}: overlap {100 * view['overlap']:.1f} %"
        plot.set_panel_title(panel, head, plot.WIDTH)
        panel.set_ylabel("pairs (%)")
        panel.grid(axis="y")
    panels[-1].set_xlabel("distance")
    panels[0].legend(loc="upper left")
    view = views.readings[0][1]
    caption = (
        f"Euclidean distances of unit embeddings of {views.options.split} images, "
        f"{views.protocol}, the first seed of each cell: shares of the pairs within a class "
        "and of those between two. Overlap: what both histograms have in common; vertical lines: "
        f"means. All pairs of {view['images']} images of {view['classes']} classes."
    )
    return models.ModelDrawing(drawing, caption, spots)


MARKERS = "osv"  # with eight colours 24 kinds of points, one for each class drawn
ZOOM = 0.28  # of a picture's own size


class MapOptions(models.ModelOptions):
    """Options of `embedding_map`, by t-SNE.

    classes: number of classes drawn.
    points: largest number of their images.
    pictures: number of images shown.
    perplexity: approximate number of neighbours of a point.
    centred: subtract class means first, which shows how images of one class differ
        (DVML, Fig. 1).
    """

    classes: int = Field(12, ge=1, le=24)
    points: int = Field(600, ge=4, le=5000)
    pictures: int = Field(40, ge=0, le=200)
    perplexity: float = Field(30.0, ge=2, le=200)
    centred: bool = False


@models.register_model_figure(MapOptions, "the embedding space", apart=True)
def embedding_map(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw one point per image, with a colour and a marker for each class, and some pictures."""
    drawing, panel = plot.create_single_panel(title, plot.WIDTH)
    panel.set(xticks=[], yticks=[])
    model, view = views.readings[0]  # the figure shows one model
    names = view["classes"]
    x, y, label = (np.asarray(view[name]) for name in ("x", "y", "label"))
    colours = [plot.COLOURS[i % len(plot.COLOURS)] for i in range(len(names))]
    for i, name in enumerate(names):
        marker = MARKERS[i // len(plot.COLOURS)]
        style: Any = {"color": colours[i], "marker": marker, "linewidths": 0}
        panel.scatter(x[label == i], y[label == i], s=16, label=name, **style)
    for i, picture in view["pictures"]:
        models.put_thumbnail(panel, (x[i], y[i]), picture, ZOOM, colours[label[i]])
    panel.margins(0.06)
    plot.draw_legend(panel, max(len(names), 5))  # 5 lines: the legend is below the axes
    caption = (
        f"{model.describe()}, {views.protocol}: t-SNE of {len(x)} {views.options.split} "
        f"images of {len(names)} of {view['of_classes']} classes, perplexity "
        f"{view['options']['perplexity']:g}. The map shows which images are neighbours, but "
        "neither distances between groups nor their sizes."
    )
    points = zip(x, y, label, strict=True)
    spots = tuple(plot.Tooltip(panel, float(a), float(b), names[c]) for a, b, c in points)
    return models.ModelDrawing(drawing, caption, spots)


UNSEEN = "#5f5f5f"


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
def plane(views: models.Views, title: str) -> models.ModelDrawing:
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
    edges = (plot.COLOURS[0], plot.COLOURS[1], UNSEEN)
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
    return models.ModelDrawing(drawing, caption, spots)


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


PICTURE_ZOOM = 0.4  # of a picture's own size
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
def single_step(views: models.Views, title: str) -> models.ModelDrawing:
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
            models.put_thumbnail(panel, start, picture, PICTURE_ZOOM, colour, **above)
        panel.margins(0.12)
    return models.ModelDrawing(drawing, caption, spots)


MAX_LINE_TOOLTIPS = 40  # of a line


class SpectrumOptions(models.ModelOptions):
    """Options of `spectrum`: singular values of the embeddings of a split (NIR, Fig. 4)."""

    every: ClassVar[bool] = True


@models.register_model_figure(SpectrumOptions, "singular values")
def spectrum(views: models.Views, title: str) -> models.ModelDrawing:
    """Draw one line per model: the singular values of its embeddings as shares of their sum."""
    drawing, panel = plot.create_single_panel(title)
    spots = []
    for i, (model, view) in enumerate(views.readings):
        shares = [100 * share for share in view["shares"]]
        name = f"{labels.replace_greek_names(model.cell)} (ρ = {view['spectrum']:.3f})"
        panel.plot(range(1, len(shares) + 1), shares, label=name, **plot.select_line_style(i))
        spots += [
            plot.Tooltip(panel, j + 1, shares[j], f"{model.cell}, no. {j + 1}: {shares[j]:.3g} %")
            for j in range(0, len(shares), max(1, len(shares) // MAX_LINE_TOOLTIPS))
        ]
    panel.set(yscale="log", xlabel="singular value, in descending order")
    panel.set_ylabel("share of their sum (%)")
    panel.grid()
    plot.draw_legend(panel, len(views.readings))
    caption = (
        f"Singular values of the unit embeddings of the {views.options.split} images over their "
        f"sum, {views.protocol}, the first seed of each cell. ρ = KL(U ‖ S) of equal "
        "shares U and these shares S, smaller if the directions are used more evenly."
    )
    return models.ModelDrawing(drawing, caption, spots)
