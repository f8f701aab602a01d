"""Convergence curves: a metric after each epoch, with a band over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

import reports.figures.drawn as plot
from reports.frame import Frame
from reports.recipe import Curves
from reports.tables.cells import summaries
from reports.tables.labels import (
    coordinate_name,
    greek,
    level,
    lower_is_better,
    metric_label,
    number,
    scale,
)


@plot.style()
def curves(frame: Frame, recipe: Curves) -> plot.Drawn:
    """Draw a line per cell: the mean over seeds at each epoch, with a band of ± one sd.

    Only epochs that all finished seeds of a cell reported are drawn.
    """
    import pandas as pd

    metric = recipe.metric
    parts = [part for study in recipe.studies for part in _cells_of(frame, recipe, study)]
    title = greek(recipe.title) or metric_label(metric)
    counts, spots, drawn_lines = [], [], 0
    drawing, axes = plot.single(title)
    for i, (label, cells) in enumerate(parts):
        done = cells[cells["status"] == "done"]
        counts.append(len(done))
        table = frame.curves(metric, done["run_id"]).groupby("epoch")["value"]
        table = table.agg(["mean", "count", "std"])
        table = table[table["count"] == len(done)]
        if not len(table):
            continue
        drawn_lines += 1
        line: dict[str, Any] = {**plot.line_style(i), "label": f"{label} ({len(done)})"}
        x, y, sd = table.index, scale(metric) * table["mean"], scale(metric) * table["std"]
        mark = "o" if len(x) < 8 else None
        axes.plot(x, y, linewidth=1.8, marker=mark, markersize=3.5, **line)
        if len(done) > 1 and np.isfinite(sd).all():
            axes.fill_between(x, y - sd, y + sd, color=line["color"], alpha=0.18, linewidth=0)
        for epoch, mean in y.items():
            words = f"{label}, epoch {epoch}: {number(mean, 2)}"
            spots.append(plot.Spot(axes, epoch, mean, words))
    axes.set(xlabel="epoch", ylabel=metric_label(metric))
    plot.few_ticks(axes.xaxis)
    axes.grid()
    if drawn_lines:
        plot.legend(axes, drawn_lines, "(number of seeds)")
    else:
        plot.empty(axes)
    band = "; band: ± one sd over seeds" if max(counts, default=0) > 1 else ""
    caption = f"{metric_label(metric)} after each epoch: mean, {plot.seeds_text(counts)}{band}."
    shown = pd.concat([cells for _, cells in parts]) if parts else frame.cells.iloc[:0]
    key = f"curves_{'_'.join(recipe.studies)}_{metric}"
    return plot.finish(recipe, shown, drawing, spots, title=title, caption=caption, key=key)


def _cells_of(frame: Frame, recipe: Curves, study: str) -> list[tuple[str, Any]]:
    """Return the cells of a study that are shown, each after its label; of a search the best."""
    cells = frame.study(study)
    names = [c for c in dict.fromkeys(cells["cell"]) if not recipe.cells or c in recipe.cells]
    if frame.design(study) == "search":
        sign = 1 if lower_is_better(recipe.metric) else -1
        means = summaries(cells, recipe.metric)
        ranked = sorted(filter(means.__contains__, names), key=lambda c: sign * means[c].mean)
        names = ranked[: recipe.top]
    prefix = f"{study}: " if len(recipe.studies) > 1 else ""
    rows = [(name, cells[cells["cell"] == name]) for name in names]
    return [(prefix + _label(name, own["coords"].iloc[0]), own) for name, own in rows]


def _label(cell: str, coords: dict[str, Any]) -> str:
    """Name a line: the variant, the components that are on, a trial of a search, or the levels."""
    if coords.get("variant"):
        return str(coords["variant"])
    if set(map(str, coords.values())) <= {"on", "off"}:
        return " + ".join(k for k, v in coords.items() if v == "on") or "none"
    if len(coords) > 3:
        return f"trial {cell}"
    return ", ".join(f"{coordinate_name(k)} = {level(v)}" for k, v in coords.items())
