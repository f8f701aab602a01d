"""Heatmaps: the mean over seeds at each pair of levels.

All heatmaps of a report have one size, so that the panels of a paper's figure line up. Each has
colours of its own: on one scale for all, a panel whose effect is small would have a single colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Heatmap
from reports.stats.describe import pooled_sd, summarize
from reports.tables import labels
from reports.tables.cells import find_protocol, group_by_cell, group_by_seed

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


def compute_color_scale(frame: Frame, recipe: Heatmap) -> Shades:
    """Return the scale of a heatmap: from the least mean to the largest, and at least six sds of
    the seeds wide, so that what is within their scatter has nearly one colour.

    The sd is that of the heatmap's own cells; where none has several seeds, that of all the cells
    of the sweep that have.
    """

    def values_of(study: str) -> list[list[float]]:
        cells = group_by_cell(frame.select_study(study), recipe.metric)
        return [list(values.values()) for values in cells.values()]

    factor = labels.display_scale(recipe.metric)
    groups = values_of(recipe.study)
    means = [result.mean * factor for values in groups if (result := summarize(values))]
    pooled, where = pooled_sd(groups), "its own"
    if pooled is None:
        studies = dict.fromkeys(frame.cells["study"])
        pooled = pooled_sd(values for name in studies for values in values_of(name))
        where = "other"
    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    sd = None if pooled is None or pooled[0] == 0 else pooled[0] * factor
    widest = max(high - low, SPAN * (sd or 0.0)) or 1.0
    middle = (low + high) / 2
    source = f"{where} {pooled[1]} cells with several seeds" if pooled else ""
    return Shades(middle - widest / 2, middle + widest / 2, sd, source)


def compute_heatmap_size(frame: Frame, parts: Sequence[Heatmap]) -> tuple[float, float]:
    """Return the size in inches at which each of these heatmaps has room for its settings."""
    cells = [(frame.select_study(part.study), part) for part in parts]
    columns = max((len(_collect_axis_levels(rows, part.x)) for rows, part in cells), default=1)
    lines = max((len(_collect_axis_levels(rows, part.y)) for rows, part in cells), default=1)
    return max(plot.WIDTH, 2.0 + 0.72 * columns), 1.5 + 0.62 * max(1, lines)


def _collect_axis_levels(cells: pd.DataFrame, axis: str) -> list[Any]:
    return plot.sort_levels(list(cells[axis].dropna())) if axis in cells else []


@plot.use_report_style()
def draw_heatmap(
    frame: Frame, recipe: Heatmap, size: tuple[float, float] | None = None
) -> plot.DrawnFigure:
    """Draw the mean over seeds at each pair of levels, with ± sd where there are several seeds.

    size: in inches, of all heatmaps of a report (`compute_heatmap_size`); by itself its own. Cells
        without a
    result are hatched. Each level has the same width, so that a grid in powers of ten looks
    logarithmic.

    Raises:
        ReportError: unknown study.
    """
    cells, metric, digits = frame.select_study(recipe.study), recipe.metric, recipe.digits
    xs, ys = _collect_axis_levels(cells, recipe.x), _collect_axis_levels(cells, recipe.y)
    x_name, y_name = map(labels.format_coordinate, (recipe.x, recipe.y))
    means = np.full((len(ys), len(xs)), np.nan)
    texts: dict[tuple[int, int], str] = {}
    counts: list[int] = []
    spots = []
    factor, colours = labels.display_scale(metric), compute_color_scale(frame, recipe)
    drawing, axes = plot.create_single_panel(
        labels.replace_greek_names(recipe.title or recipe.study)
    )
    for i, j in np.ndindex(means.shape):
        rows = cells[(cells[recipe.x] == xs[j]) & (cells[recipe.y] == ys[i])]
        if cell := summarize(list(group_by_seed(rows, metric).values())):
            counts.append(cell.n)
            means[i, j] = mean = cell.mean * factor
            sd = "" if cell.sd is None else f"\n± {labels.format_number(cell.sd * factor, digits)}"
            texts[i, j] = labels.format_number(mean, digits) + sd
        elif len(rows):
            texts[i, j] = str(rows["status"].iloc[0])
        if text := texts.get((i, j), "").replace("\n", " "):
            at = f"{x_name} = {labels.format_level(xs[j])}, {y_name} = {labels.format_level(ys[i])}"
            spots.append(plot.Tooltip(axes, j, i, f"{at}: {text}"))
    _draw_squares(axes, means, texts, colours).set_label(labels.format_metric_label(metric))
    drawing.set_size_inches(size or compute_heatmap_size(frame, [recipe]))
    axes.set_xticks(range(len(xs)), [labels.format_level(level) for level in xs])
    axes.set_yticks(range(len(ys)), [labels.format_level(level) for level in ys])
    axes.set_xlabel(x_name)
    turn = 0 if len(y_name) < 3 else 90
    axes.set_ylabel(y_name, rotation=turn, labelpad=12, va="center")
    caption = (
        f"{labels.format_metric_label(metric)}, {find_protocol(frame)}: "
        f"mean{' ± sd' if max(counts, default=0) > 1 else ''}, {plot.format_seed_counts(counts)} "
        f"for each of {len(xs)} × {len(ys)} settings; hatched: no result. Colours: on a scale of "
        "its own"
    )
    if colours.sd is None:
        caption += "; no setting was repeated, so that differences may be noise."
    else:
        caption += (
            f", {SPAN:g} sds wide or more; bar on it: ± one sd of runs over seeds, "
            f"{labels.format_number(colours.sd, digits)}, pooled over {colours.source}."
        )
    title, key = (
        labels.replace_greek_names(recipe.title or recipe.study),
        f"heatmap_{recipe.study}_{metric}",
    )
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption, key=key)


def _draw_squares(
    axes: plot.Axes, means: Any, texts: dict[tuple[int, int], str], colours: Shades
) -> Any:
    """Draw the squares with their texts, and return the bar of colours with the sd on it."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, withStroke

    scale: dict[str, Any] = {"cmap": "cividis", "vmin": colours.low, "vmax": colours.high}
    flat: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    image = axes.imshow(np.ma.masked_invalid(means), **scale, **flat)
    hatched: dict[str, Any] = {"facecolor": plot.PANEL, "edgecolor": "#9a9a9a", "hatch": "////"}
    centred: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.15}
    for i, j in np.ndindex(means.shape):
        if np.isfinite(means[i, j]):
            red, green, blue, _ = image.cmap(image.norm(means[i, j]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            ink, box = plot.LIGHT_INK if dark else plot.DARK_INK, None
        else:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, linewidth=0, **hatched))
            ink, box = "black", {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        text = axes.text(j, i, texts.get((i, j), "not run"), color=ink, bbox=box, **centred)
        text.set_in_layout(False)  # it stands in its square
    axes.set_xticks(np.arange(means.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(means.shape[0] + 1) - 0.5, minor=True)
    axes.set_axisbelow("line")
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, pad=0.03, fraction=0.06)
    bar.outline.set_visible(False)
    plot.limit_ticks(bar.long_axis, 4)
    if colours.sd is not None:
        middle = (colours.low + colours.high) / 2
        line = bar.ax.errorbar([0.5], [middle], [colours.sd], color="white")
        for part in (line.lines[0], *line.lines[1], *line.lines[2]):
            part.set_path_effects([withStroke(linewidth=3, foreground="black"), Normal()])
    return bar
