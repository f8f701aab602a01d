"""Convergence curves: a metric after each epoch, with a band over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Curves
from reports.tables import labels
from reports.tables.cells import summarize_cells


@plot.use_report_style()
def draw_learning_curves(frame: Frame, recipe: Curves) -> plot.DrawnFigure:
    """Draw a line per cell: the mean over seeds at each epoch, with a band of ± one sd.

    Only epochs that all finished seeds of a cell reported are drawn.
    """
    import pandas as pd

    metric = recipe.metric
    parts = [part for study in recipe.studies for part in _select_cells(frame, recipe, study)]
    title = labels.replace_greek_names(recipe.title) or labels.format_metric_label(metric)
    counts, spots, drawn_lines = [], [], 0
    drawing, axes = plot.create_single_panel(title)
    for i, (label, cells) in enumerate(parts):
        done = cells[cells["status"] == "done"]
        counts.append(len(done))
        table = frame.load_curves(metric, done["run_id"]).groupby("epoch")["value"]
        table = table.agg(["mean", "count", "std"])
        table = table[table["count"] == len(done)]
        if not len(table):
            continue
        drawn_lines += 1
        line: dict[str, Any] = {**plot.select_line_style(i), "label": f"{label} ({len(done)})"}
        x, y, sd = (
            table.index,
            labels.display_scale(metric) * table["mean"],
            labels.display_scale(metric) * table["std"],
        )
        mark = "o" if len(x) < 8 else None
        axes.plot(x, y, linewidth=1.8, marker=mark, markersize=3.5, **line)
        if len(done) > 1 and np.isfinite(sd).all():
            axes.fill_between(x, y - sd, y + sd, color=line["color"], alpha=0.18, linewidth=0)
        for epoch, mean in y.items():
            words = f"{label}, epoch {epoch}: {labels.format_number(mean, 2)}"
            spots.append(plot.Tooltip(axes, epoch, mean, words))
    axes.set(xlabel="epoch", ylabel=labels.format_metric_label(metric))
    axes.locator_params(axis="x", integer=True)
    axes.grid()
    if drawn_lines:
        plot.draw_legend(axes, drawn_lines, "(number of seeds)")
    else:
        plot.draw_empty_message(axes)
    band = "; band: ± one sd over seeds" if max(counts, default=0) > 1 else ""
    caption = (
        f"{labels.format_metric_label(metric)} after each epoch: mean, "
        f"{plot.format_seed_counts(counts)}{band}."
    )
    all_cells = pd.concat([cells for _, cells in parts]) if parts else frame.cells.iloc[:0]
    key = f"curves_{'_'.join(recipe.studies)}_{metric}"
    return plot.build_figure(
        recipe, all_cells, drawing, spots, title=title, caption=caption, key=key
    )


def _select_cells(frame: Frame, recipe: Curves, study: str) -> list[tuple[str, Any]]:
    """Return the cells of a study that are shown, each after its label; of a search the best."""
    cells = frame.select_study(study)
    names = [c for c in dict.fromkeys(cells["cell"]) if not recipe.cells or c in recipe.cells]
    if frame.get_design(study) == "search":
        sign = 1 if labels.is_lower_better(recipe.metric) else -1
        means = summarize_cells(cells, recipe.metric)
        ranked = sorted(filter(means.__contains__, names), key=lambda c: sign * means[c].mean)
        names = ranked[: recipe.top]
    prefix = f"{study}: " if len(recipe.studies) > 1 else ""
    rows = [(name, cells[cells["cell"] == name]) for name in names]
    return [
        (prefix + _label_line(name, rows_of_cell["coords"].iloc[0]), rows_of_cell)
        for name, rows_of_cell in rows
    ]


def _label_line(cell: str, coords: dict[str, Any]) -> str:
    """Name a line: the variant, the components that are on, a trial of a search, or the levels."""
    if coords.get("variant"):
        return str(coords["variant"])
    if set(map(str, coords.values())) <= {"on", "off"}:
        return " + ".join(k for k, v in coords.items() if v == "on") or "none"
    if len(coords) > 3:
        return f"trial {cell}"
    return ", ".join(
        f"{labels.format_coordinate(k)} = {labels.format_level(v)}" for k, v in coords.items()
    )
