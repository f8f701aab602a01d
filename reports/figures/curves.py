"""Convergence curves: a metric after each epoch, with a band over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from reports.figures.drawn import (
    COLOURS,
    DASHES,
    Drawn,
    Spot,
    empty,
    few_ticks,
    finish,
    legend,
    lined,
    seeds_text,
    single,
    style,
)
from reports.frame import Frame
from reports.recipe import Curves
from reports.stats.describe import summary
from reports.tables.cells import by_cell
from reports.tables.labels import (
    coordinate_name,
    greek,
    level,
    lower_is_better,
    metric_label,
    number,
    scale,
)


def curves(frame: Frame, recipe: Curves) -> Drawn:
    """Draw a line per cell: the mean over seeds at each epoch, with a band of ± one sd.

    Only epochs that all finished seeds of a cell reported are drawn.
    """
    import pandas as pd

    metric, factor = recipe.metric, scale(recipe.metric)
    parts = [part for study in recipe.studies for part in _lines(frame, recipe, study)]
    title = greek(recipe.title) or metric_label(metric)
    lines: list[tuple[str, Any, int]] = []
    for label, cells in parts:
        done = cells[cells["status"] == "done"]
        table = frame.curves(metric, done["run_id"]).groupby("epoch")["value"]
        table = table.agg(["mean", "count", "std"])
        table = table[table["count"] == len(done)] if len(table) else table
        lines.append((label, table * [factor, 1, factor], len(done)))
    with style():
        drawing, axes = single(title)
        _draw(axes, lines, metric)
    counts = [n for _, _, n in lines]
    band = "; band: ± one sd over seeds" if max(counts, default=0) > 1 else ""
    caption = f"{metric_label(metric)} after each epoch: mean, {seeds_text(counts)}{band}."
    spots = [
        Spot(axes, epoch, mean, f"{label}, epoch {epoch}: {number(mean, 2)}")
        for label, table, _ in lines
        for epoch, mean in (table["mean"].items() if len(table) else ())
    ]
    none = frame.cells.iloc[:0]
    shown = pd.concat([cells for _, cells in parts]) if parts else none
    key = f"curves_{'_'.join(recipe.studies)}_{metric}"
    return finish(recipe, shown, drawing, spots, title=title, caption=caption, key=key)


def _lines(frame: Frame, recipe: Curves, study: str) -> list[tuple[str, Any]]:
    """Return the cells of a study that are shown, each after its label; of a search the best."""
    cells = frame.study(study)
    names = [c for c in dict.fromkeys(cells["cell"]) if not recipe.cells or c in recipe.cells]
    if frame.design(study) == "search":
        sign = 1 if lower_is_better(recipe.metric) else -1
        values = by_cell(cells, recipe.metric)
        best = {c: s.mean for c in names if (s := summary(list(values[c].values())))}
        names = sorted(best, key=lambda c: sign * best[c])[: recipe.top]
    prefix = f"{study}: " if len(recipe.studies) > 1 else ""
    every = [(name, cells[cells["cell"] == name]) for name in names]
    return [(prefix + _cell_label(name, mine["coords"].iloc[0]), mine) for name, mine in every]


def _cell_label(cell: str, coords: dict[str, Any]) -> str:
    if coords.get("variant"):
        return str(coords["variant"])
    if set(map(str, coords.values())) <= {"on", "off"}:
        return " + ".join(k for k, v in coords.items() if v == "on") or "none"
    if len(coords) > 3:
        return f"trial {cell}"
    return ", ".join(f"{coordinate_name(k)} = {level(v)}" for k, v in coords.items())


def _draw(axes: Any, lines: list[tuple[str, Any, int]], metric: str) -> None:
    count = 0
    for i, (label, table, n) in enumerate(lines):
        if not len(table):
            continue
        count += 1
        colour = COLOURS[i % len(COLOURS)]
        x, y, sd = table.index.to_numpy(), table["mean"].to_numpy(), table["std"].to_numpy()
        axes.plot(
            x,
            y,
            color=colour,
            linestyle=DASHES[(i // len(COLOURS) + i) % len(DASHES)],
            linewidth=1.8,
            label=f"{label} ({n})",
            marker="o" if len(x) < 8 else None,
            markersize=3.5,
        )
        if n > 1 and np.isfinite(sd).all():
            axes.fill_between(x, y - sd, y + sd, color=colour, alpha=0.18, linewidth=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric_label(metric))
    few_ticks(axes.xaxis)
    lined(axes)
    if count:
        legend(axes, count, "(number of seeds)")
    else:
        empty(axes)
