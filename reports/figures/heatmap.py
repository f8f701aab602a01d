"""Heatmaps: the mean over seeds at each pair of levels.

Each has colours of its own: on one scale for all, a panel whose effect is small would have a single
colour.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import reports.figures.figure as plot
from reports.frame import DataFrame, Frame
from reports.recipe import Figure, HeatmapOptions
from reports.stats.describe import pooled_sd, summarize
from reports.tables import labels
from reports.tables.cells import find_protocol, group_by_cell, group_by_seed
from trainables.words.metrics import display_scale, format_metric_label

SPAN = 6.0  # sds of the seeds that the colours span at least, so that noise looks like noise


@dataclass(frozen=True)
class ColorScale:
    """The scale of colours of a heatmap, in the displayed unit.

    sd: over seeds or splits, pooled over cells; None where no cell has two.
    source: the cells of the sd, for the caption.
    """

    low: float
    high: float
    sd: float | None
    source: str = ""


def compute_color_scale(frame: Frame, recipe: Figure) -> ColorScale:
    """Return the scale of a heatmap's colours: the range of its means, or six sds if that is wider.

    Means whose differences are as small as those between seeds then have nearly one colour. The sd
    is pooled over the heatmap's cells or, if none has several seeds, over all cells of the sweep.
    """

    def list_values(studies: list[DataFrame]) -> list[list[float]]:
        """Return the values over seeds or splits of each cell of studies."""
        by_cell = [group_by_cell(cells, recipe.metric) for cells in studies]
        return [list(values.values()) for study in by_cell for values in study.values()]

    # the studies whose cells give the sd, and their name in a caption
    studies, owner = [frame.select_study(recipe.studies[0])], "its own"
    groups = list_values(studies)
    factor = display_scale(recipe.metric)
    means = [result.mean * factor for values in groups if (result := summarize(values))]
    pooled = pooled_sd(groups)
    if pooled is None:
        studies, owner = [*map(frame.select_study, dict.fromkeys(frame.cells["study"]))], "other"
        pooled = pooled_sd(list_values(studies))
    raw_sd, count = pooled or (0.0, 0)
    sd = raw_sd * factor or None  # None without seeds that differ
    low, high = min(means, default=0.0), max(means, default=1.0)
    width = max(high - low, SPAN * (sd or 0.0)) or 1.0  # 1.0 if nothing differs
    middle, half = (low + high) / 2, width / 2
    source = f"{owner} {count} cells with several {plot.name_units(studies)}"
    return ColorScale(middle - half, middle + half, sd, source)


def _collect_axis_levels(cells: DataFrame, axis: str) -> list[Any]:
    return plot.sort_levels(list(cells[axis].dropna())) if axis in cells else []


@plot.figure(HeatmapOptions)
def heatmap(frame: Frame, recipe: Figure, options: HeatmapOptions) -> plot.DrawnFigure:
    """Draw the mean over seeds at each pair of levels, with ± sd where there are several seeds.

    Cells without a result are hatched. Each level has the same width, so that a grid in powers of
    ten looks logarithmic.
    """
    study, metric, digits = recipe.studies[0], recipe.metric, options.digits
    cells = frame.select_study(study)
    xs, ys = _collect_axis_levels(cells, options.x), _collect_axis_levels(cells, options.y)
    x_name, y_name = map(labels.format_coordinate, (options.x, options.y))
    metric_label, factor = format_metric_label(metric), display_scale(metric)
    title = labels.replace_greek_names(recipe.title or study)
    drawing, axes = plot.create_single_panel(title)
    width = max(plot.WIDTH, 2.0 + 0.72 * len(xs))
    drawing.set_size_inches(width, 1.5 + 0.62 * max(1, len(ys)))
    # means and texts of the squares
    means = np.full((len(ys), len(xs)), np.nan)
    texts: dict[tuple[int, int], str] = {}
    counts, spots = [], []
    for i, j in np.ndindex(means.shape):
        rows = cells[(cells[options.x] == xs[j]) & (cells[options.y] == ys[i])]
        if cell := summarize(list(group_by_seed(rows, metric).values())):
            counts.append(cell.n)
            means[i, j] = mean = cell.mean * factor
            sd = "" if cell.sd is None else f"\n± {labels.format_number(cell.sd * factor, digits)}"
            texts[i, j] = labels.format_number(mean, digits) + sd
        elif len(rows):
            texts[i, j] = str(rows["status"].iloc[0])  # why there is no mean
        if text := texts.get((i, j), "").replace("\n", " "):
            at = f"{x_name} = {labels.format_level(xs[j])}, {y_name} = {labels.format_level(ys[i])}"
            runs = rows["study"].iloc[0], rows["cell"].iloc[0]
            spots.append(plot.Tooltip(axes, j, i, f"{at}: {text}", runs))
    scale = compute_color_scale(frame, recipe)
    _draw_squares(axes, means, texts, scale).set_label(metric_label)
    # axes and caption
    axes.set_xticks(range(len(xs)), list(map(labels.format_level, xs)))
    axes.set_yticks(range(len(ys)), list(map(labels.format_level, ys)))
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name, rotation=0 if len(y_name) < 3 else 90, labelpad=12, va="center")
    spread, units = " ± sd" if max(counts, default=0) > 1 else "", plot.name_units([cells])
    caption = (
        f"{metric_label}, {find_protocol(frame)}: mean{spread}, "
        f"{plot.format_counts(counts, units)} for each of {len(xs)} × {len(ys)} settings; hatched: "
        "no result. Colours: on a scale of this figure alone"
    )
    if scale.sd is None:
        caption += "; no setting was repeated, so that differences may be noise."
    else:
        caption += (
            f", at least {SPAN:g} sds wide; one sd is "
            f"{labels.format_number(scale.sd, digits)}, pooled over {scale.source}."
        )
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def _draw_squares(
    axes: plot.Axes, means: Any, texts: dict[tuple[int, int], str], scale: ColorScale
) -> Any:
    """Draw squares with colours (or hatching without a mean) and texts; return the colour bar."""
    from matplotlib.patches import Rectangle

    # colours, hatching and texts
    colours: dict[str, Any] = {"cmap": "cividis", "vmin": scale.low, "vmax": scale.high}
    grid: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    image = axes.imshow(np.ma.masked_invalid(means), **colours, **grid)
    hatched: dict[str, Any] = {"facecolor": "#f2f2f2", "edgecolor": "#9a9a9a", "hatch": "////"}
    centred: dict[str, Any] = {"ha": "center", "va": "center", "linespacing": 1.15}
    for i, j in np.ndindex(means.shape):
        if np.isfinite(means[i, j]):
            red, green, blue, _ = image.cmap(image.norm(means[i, j]))
            is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5  # the luminance
            ink, box = "white" if is_dark else "black", None
        else:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, linewidth=0, **hatched))
            ink, box = "black", {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        text = axes.text(j, i, texts.get((i, j), "not run"), color=ink, bbox=box, **centred)
        text.set_in_layout(False)  # the text stays within its square
    # white lines between squares
    axes.set_xticks(np.arange(means.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(means.shape[0] + 1) - 0.5, minor=True)
    axes.set_axisbelow("line")
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    # colour bar
    bar = axes.figure.colorbar(image, ax=axes, pad=0.03, fraction=0.06)
    bar.outline.set_visible(False)
    bar.ax.locator_params(axis="y", nbins=4)
    return bar
