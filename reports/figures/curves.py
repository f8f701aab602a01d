"""Convergence curves: a metric after each epoch, with a band over seeds."""

from typing import Any

import numpy as np

import reports.figures.figure as plot
from reports.frame import DataFrame, Frame
from reports.recipe import CurvesOptions, Figure
from reports.tables import labels
from reports.tables.cells import find_sign, find_unit, summarize_cells
from trainables.words.metrics import display_scale, format_metric_label


@plot.figure(CurvesOptions)
def curves(frame: Frame, recipe: Figure, options: CurvesOptions) -> plot.DrawnFigure:
    """Draw a line per cell: the mean over seeds or splits at each epoch, with a band of ± one sd.

    A cell's line has only the epochs that all its finished runs reported.
    """
    import pandas as pd

    metric, scale = recipe.metric, display_scale(recipe.metric)
    metric_label = format_metric_label(metric)
    parts = [
        part for study in recipe.studies for part in _select_cells(frame, recipe, options, study)
    ]
    units = plot.name_units(cells for _, cells in parts) or "seeds"
    title = labels.replace_greek_names(recipe.title) or metric_label
    drawing, axes = plot.create_single_panel(title)
    counts, spots, line_count = [], [], 0
    for i, (label, cells) in enumerate(parts):
        values = scale * _load_values(frame, metric, cells)
        n = len(values.columns)
        counts.append(n)
        if values.empty:
            continue
        line_count += 1
        style: dict[str, Any] = plot.select_line_style(i)
        x, y, sd = values.index, values.mean(axis=1), values.std(axis=1)
        mark = "o" if len(x) < 8 else None
        line_label = f"{label} ({n})"
        axes.plot(x, y, linewidth=1.8, marker=mark, markersize=3.5, label=line_label, **style)
        if n > 1 and np.isfinite(sd).all():
            axes.fill_between(x, y - sd, y + sd, color=style["color"], alpha=0.18, linewidth=0)
        spots += [
            plot.Tooltip(axes, x, mean, f"{label}, epoch {x}: {labels.format_number(mean, 2)}")
            for x, mean in y.items()
        ]
    axes.set(xlabel="epoch", ylabel=metric_label)
    axes.locator_params(axis="x", integer=True)
    axes.grid()
    if line_count:
        plot.draw_legend(axes, line_count, f"(number of {units})")
    else:
        plot.draw_empty_message(axes)
    band = f"; band: ± one sd over {units}" if max(counts, default=0) > 1 else ""
    caption = f"{metric_label} after each epoch: mean, {plot.format_counts(counts, units)}{band}."
    cells = pd.concat([frame.cells.iloc[:0], *(cells for _, cells in parts)])
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def _load_values(frame: Frame, metric: str, cells: DataFrame) -> DataFrame:
    """Return a cell's values, a row per epoch that all runs reported, a column per seed or split.

    A value is the mean over runs, as in tables; seeds and splits with an unfinished run are left
    out.
    """
    unit = find_unit(cells)
    is_complete = (cells["status"] == "done").groupby(cells[unit]).transform("all")
    runs = cells[is_complete][[unit, "run_id"]]
    points = frame.load_curves(metric, dict.fromkeys(runs["run_id"])).merge(runs, on="run_id")
    points = points[points.groupby("epoch")["value"].transform("count") == len(runs)]
    return points.pivot_table("value", "epoch", unit)


def _select_cells(
    frame: Frame, recipe: Figure, options: CurvesOptions, study: str
) -> list[tuple[str, DataFrame]]:
    """Return (label, rows) of each cell to show: of a search, only the `top` best cells."""
    cells = frame.select_study(study)
    names = [c for c in dict.fromkeys(cells["cell"]) if not options.cells or c in options.cells]
    if frame.get_design(study) == "search":
        sign = find_sign(frame, study, recipe.metric)
        means = summarize_cells(cells, recipe.metric)
        finished = [name for name in names if name in means]
        names = sorted(finished, key=lambda name: -sign * means[name].mean)[: options.top]
    prefix = f"{study}: " if len(recipe.studies) > 1 else ""
    lines = []
    for name in names:
        rows = cells[cells["cell"] == name]
        lines.append((prefix + _label_line(name, rows["coords"].iloc[0]), rows))
    return lines


def _label_line(cell: str, coords: dict[str, Any]) -> str:
    """Return a cell's name in the legend: variant, components that are on, trial, or levels."""
    if coords.get("variant"):
        return str(coords["variant"])
    if set(map(str, coords.values())) <= {"on", "off"}:  # the coordinates are components
        return " + ".join(k for k, v in coords.items() if v == "on") or "none"
    if len(coords) > 3:  # too many parameters for a legend
        return f"trial {cell}"
    format_name, format_level = labels.format_coordinate, labels.format_level
    return ", ".join(f"{format_name(k)} = {format_level(v)}" for k, v in coords.items())
