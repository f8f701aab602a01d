"""Heatmaps: the mean over seeds at each pair of levels.

All heatmaps of a report have one size, so that the panels of a paper's figure line up. Each has
colours of its own: on one scale for all, a panel whose effect is small would have a single colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.figures.drawn import (
    DARK_INK,
    LIGHT_INK,
    PANEL,
    WIDTH,
    Canvas,
    Drawn,
    Spot,
    few_ticks,
    finish,
    ordered,
    seeds_text,
    single,
    style,
)
from reports.frame import Frame
from reports.recipe import Heatmap
from reports.stats.describe import pooled_sd, summary
from reports.tables.cells import by_cell, by_seed, is_missing, protocol
from reports.tables.labels import (
    coordinate_name,
    greek,
    level,
    metric_label,
    number,
    scale,
    ticks,
)

if TYPE_CHECKING:
    import pandas as pd

SPAN = 6.0  # sds of the seeds that the colours span at least: noise is to look like noise


@dataclass(frozen=True)
class Shades:
    """The scale of colours of a heatmap, in the unit that is shown.

    sd: of single runs over seeds, pooled over cells; None where no cell has two. source: which.
    """

    low: float
    high: float
    sd: float | None
    source: str = ""


def shades(frame: Frame, recipe: Heatmap) -> Shades:
    """Return the scale of a heatmap: from the least mean to the largest, and at least six sds of
    the seeds wide, so that what is within their scatter has nearly one colour.

    The sd is that of the heatmap's own cells; where none has several seeds, that of all the cells
    of the sweep that have.
    """
    metric, factor = recipe.metric, scale(recipe.metric)
    groups = list(_values(frame.study(recipe.study), metric))
    means = [found.mean * factor for values in groups if (found := summary(values))]
    pooled, where = pooled_sd(groups), "its own"
    if pooled is None:
        every = [frame.study(name) for name in dict.fromkeys(frame.cells["study"])]
        pooled = pooled_sd(values for cells in every for values in _values(cells, metric))
        where = "other"
    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    sd = None if pooled is None or pooled[0] == 0 else pooled[0] * factor
    widest = max(high - low, SPAN * (sd or 0.0)) or 1.0
    middle = (low + high) / 2
    source = f"{where} {pooled[1]} cells with several seeds" if pooled else ""
    return Shades(middle - widest / 2, middle + widest / 2, sd, source)


def _values(cells: pd.DataFrame, metric: str) -> Iterable[list[float]]:
    return (list(values.values()) for values in by_cell(cells, metric).values())


def size_of(frame: Frame, parts: Sequence[Heatmap]) -> tuple[float, float]:
    """Return the size in inches at which each of these heatmaps has room for its settings."""
    levels = [_levels(frame.study(part.study), part) for part in parts]
    columns, lines = (max((len(found[i]) for found in levels), default=1) for i in (0, 1))
    return max(WIDTH, 2.0 + 0.72 * columns), 1.5 + 0.62 * max(1, lines)


def _levels(cells: pd.DataFrame, recipe: Heatmap) -> tuple[list[Any], list[Any]]:
    """Return the levels of x and of y."""
    xs, ys = (
        ordered([value for value in cells[axis] if not is_missing(value)]) if axis in cells else []
        for axis in (recipe.x, recipe.y)
    )
    return xs, ys


def heatmap(frame: Frame, recipe: Heatmap, size: tuple[float, float] | None = None) -> Drawn:
    """Draw the mean over seeds at each pair of levels, with ± sd where there are several seeds.

    size: in inches, of all heatmaps of a report (`size_of`); by itself its own. Cells without a
    result are hatched. Each level has the same width, so that a grid in powers of ten looks
    logarithmic.

    Raises:
        ReportError: unknown study.
    """
    cells, metric, digits = frame.study(recipe.study), recipe.metric, recipe.digits
    xs, ys = _levels(cells, recipe)
    means = np.full((len(ys), len(xs)), np.nan)
    texts: dict[tuple[int, int], str] = {}
    counts: list[int] = []
    factor = scale(metric)
    for i, y in enumerate(ys):
        for j, x in enumerate(xs):
            here = cells[(cells[recipe.x] == x) & (cells[recipe.y] == y)]
            cell = summary(list(by_seed(here, metric).values()))
            counts.append(cell.n if cell else 0)
            if cell:
                means[i, j] = cell.mean * factor
                sd = "" if cell.sd is None else f"\n± {number(cell.sd * factor, digits)}"
                texts[i, j] = number(means[i, j], digits) + sd
            elif len(here):
                texts[i, j] = str(here["status"].iloc[0])
    title = greek(recipe.title or recipe.study)
    colours = shades(frame, recipe)
    with style():
        drawing = _draw(means, texts, (xs, ys), recipe, title=title, colours=colours)
        drawing.set_size_inches(size or size_of(frame, [recipe]))
    caption = (
        f"{metric_label(metric)}, {protocol(frame)}: mean"
        f"{' ± sd' if max(counts, default=0) > 1 else ''}, {seeds_text(counts)}"
        f" for each of {len(xs)} × {len(ys)} settings; hatched: no result. "
        "Colours: on a scale of its own"
    )
    if colours.sd is None:
        caption += "; no setting was repeated, so that differences may be noise."
    else:
        caption += (
            f", {SPAN:g} sds wide or more; bar on it: ± one sd of runs over seeds, "
            f"{number(colours.sd, digits)}, pooled over {colours.source}."
        )
    names = coordinate_name(recipe.x), coordinate_name(recipe.y)
    spots = [
        Spot(
            drawing.axes[0],
            j,
            i,
            f"{names[0]} = {level(xs[j])}, {names[1]} = {level(ys[i])}: {' '.join(text.split())}",
        )
        for (i, j), text in texts.items()
    ]
    key = f"heatmap_{recipe.study}_{metric}"
    return finish(recipe, cells, drawing, spots, title=title, caption=caption, key=key)


def _draw(
    means: Any,
    texts: dict[tuple[int, int], str],
    levels: tuple[list[Any], list[Any]],
    recipe: Heatmap,
    *,
    title: str,
    colours: Shades,
) -> Canvas:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, withStroke

    xs, ys = levels
    drawing, axes = single(title)
    image = axes.imshow(
        np.ma.masked_invalid(means),
        cmap="cividis",
        vmin=colours.low,
        vmax=colours.high,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
    )
    hatched: dict[str, Any] = {
        "facecolor": PANEL,
        "edgecolor": "#9a9a9a",
        "hatch": "////",
        "linewidth": 0,
    }
    for i, j in np.ndindex(means.shape):
        if np.isfinite(means[i, j]):
            red, green, blue, _ = image.cmap(image.norm(means[i, j]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            ink, box = LIGHT_INK if dark else DARK_INK, None
        else:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **hatched))
            ink, box = "black", {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(
            j,
            i,
            texts.get((i, j), "not run"),
            ha="center",
            va="center",
            color=ink,
            bbox=box,
            linespacing=1.15,
        ).set_in_layout(False)  # it stands in its square
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
    bar = drawing.colorbar(image, ax=axes, pad=0.03, fraction=0.06)
    bar.outline.set_visible(False)
    bar.set_label(metric_label(recipe.metric))
    few_ticks(bar.long_axis, 4)
    if colours.sd is not None:
        line = bar.ax.errorbar(
            [0.5], [(colours.low + colours.high) / 2], [colours.sd], color="white", capsize=3
        )
        for part in (line.lines[0], *line.lines[1], *line.lines[2]):
            part.set_path_effects([withStroke(linewidth=3, foreground="black"), Normal()])
    return drawing
