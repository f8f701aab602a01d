"""Heatmaps: the mean over seeds at each pair of levels."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from reports.figures.drawn import Drawn, ordered, seeds_text, style
from reports.frame import Frame
from reports.recipe import Heatmap
from reports.stats.describe import summary
from reports.tables.cells import by_seed, gaps, protocol
from reports.tables.labels import (
    coordinate_name,
    metric_label,
    number,
    scale,
    slug,
    ticks,
)


def heatmap(frame: Frame, recipe: Heatmap) -> Drawn:
    """Mean over seeds at each pair of levels, with ± sd where there are two or more seeds.

    Cells without a result are hatched. Each level has the same width, so that a grid in powers
    of ten looks logarithmic.

    Raises:
        ReportError: unknown study.
    """
    cells = frame.study(recipe.study)
    for axis in (recipe.x, recipe.y):
        if axis not in cells.columns:
            cells[axis] = None
    xs, ys = ordered(list(cells[recipe.x].dropna())), ordered(list(cells[recipe.y].dropna()))
    means = np.full((len(ys), len(xs)), np.nan)
    texts: dict[Any, str] = {}
    counts: list[int] = []
    for i, y in enumerate(ys):
        for j, x in enumerate(xs):
            here = cells[(cells[recipe.x] == x) & (cells[recipe.y] == y)]
            cell = summary(list(by_seed(here, recipe.metric).values()))
            counts.append(cell.n if cell else 0)
            if cell:
                factor = scale(recipe.metric)
                means[i, j] = cell.mean * factor
                sd = "" if cell.sd is None else f"\n± {number(cell.sd * factor, recipe.digits)}"
                texts[i, j] = number(means[i, j], recipe.digits) + sd
            elif len(here):
                texts[i, j] = str(here["status"].iloc[0])
    title = recipe.title or recipe.study
    with style():
        figure = _heatmap_figure(means, texts, (xs, ys), recipe=recipe, title=title)
    caption = (
        f"{metric_label(recipe.metric)}, {protocol(frame)}: mean"
        f"{' ± sd' if max(counts, default=0) > 1 else ''}, {seeds_text(counts)}"
        f" for each of {len(xs)} × {len(ys)} settings; hatched: no result."
    )
    if recipe.caption:
        caption = f"{recipe.caption} {caption}"
    runs = tuple(run for run in cells["run_id"] if run)
    key = slug(f"heatmap_{recipe.study}_{recipe.metric}")
    return Drawn(key, recipe.study, title, caption, figure, runs, gaps(cells))


def _heatmap_figure(
    means: Any,
    texts: dict[Any, str],
    levels: tuple[list[Any], list[Any]],
    *,
    recipe: Heatmap,
    title: str,
) -> Figure:
    xs, ys = levels
    columns, lines = max(1, len(xs)), max(1, len(ys))
    figure = Figure(figsize=(2.0 + 0.86 * columns, 1.5 + 0.62 * lines), layout="constrained")
    axes = figure.add_subplot()
    known = means[np.isfinite(means)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    image = axes.imshow(
        np.ma.masked_invalid(means),
        cmap="cividis",
        vmin=low,
        vmax=high,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
    )
    for i in range(len(ys)):
        for j in range(len(xs)):
            if not np.isfinite(means[i, j]):
                axes.add_patch(
                    Rectangle(
                        (j - 0.5, i - 0.5),
                        1,
                        1,
                        facecolor="#f2f2f2",
                        edgecolor="#9a9a9a",
                        hatch="////",
                        linewidth=0,
                    )
                )
                light, box = False, {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            else:
                red, green, blue, _ = image.cmap(image.norm(means[i, j]))
                light, box = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5, None
            axes.text(
                j,
                i,
                texts.get((i, j), "not run"),
                ha="center",
                va="center",
                fontsize=8.5,
                color="white" if light else "black",
                bbox=box,
                linespacing=1.15,
            )
    axes.set_xticks(range(len(xs)), ticks(xs))
    axes.set_yticks(range(len(ys)), ticks(ys))
    axes.set_xticks(np.arange(len(xs) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(ys) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(coordinate_name(recipe.x))
    label = coordinate_name(recipe.y)
    axes.set_ylabel(label, rotation=0 if len(label) < 3 else 90, labelpad=12, va="center")
    axes.set_title(textwrap.fill(title, 16 + 11 * columns), pad=8, loc="left", fontweight="bold")
    bar = figure.colorbar(image, ax=axes, pad=0.03, fraction=0.06)
    bar.outline.set_visible(False)
    bar.set_label(metric_label(recipe.metric))
    bar.locator = MaxNLocator(4)
    bar.update_ticks()
    return figure
