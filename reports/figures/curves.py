"""Convergence curves: a metric after each epoch, with a band over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures.drawn import (
    COLOURS,
    DASHES,
    HEIGHT,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    legend,
    lined,
    said,
    seeds_text,
    style,
)
from reports.frame import Frame
from reports.recipe import Curves
from reports.stats.describe import summary
from reports.tables.cells import by_cell, gaps
from reports.tables.labels import (
    coordinate_name,
    greek,
    level,
    metric_label,
    number,
    scale,
    slug,
)


def curves(frame: Frame, recipe: Curves) -> Drawn:
    """A line per cell: the mean over seeds at each epoch, with a band of ± one sd.

    Only epochs that all finished seeds of a cell reported are drawn.
    """
    parts: list[tuple[str, Any]] = []
    rank = scale(recipe.metric)
    for study in recipe.studies:
        cells = frame.study(study)
        names = [c for c in dict.fromkeys(cells["cell"]) if not recipe.cells or c in recipe.cells]
        if frame.design(study) == "search":
            values = by_cell(cells, recipe.metric)
            best = {c: summary(list(values[c].values())) for c in names}
            names = sorted(
                (c for c in names if best[c]), key=lambda c: -getattr(best[c], "mean", 0.0)
            )[: recipe.top]
        prefix = f"{study}: " if len(recipe.studies) > 1 else ""
        for cell in names:
            mine = cells[(cells["cell"] == cell)]
            coords = mine["coords"].iloc[0]
            label = str(coords.get("variant") or _cell_label(cell, coords))
            parts.append((prefix + label, mine))
    lines: list[tuple[str, Any, int]] = []
    missing: list[str] = []
    runs: list[str] = []
    for label, mine in parts:
        done = mine[mine["status"] == "done"]
        epochs = frame.curves(recipe.metric, done["run_id"])
        runs += list(done["run_id"])
        missing += gaps(mine)
        grouped = epochs.groupby("epoch")["value"]
        table = grouped.agg(["mean", "count", "std"])
        table = table[table["count"] == len(done)] if len(table) else table
        lines.append((label, table * [rank, 1, rank], len(done)))
    title = greek(recipe.title) or metric_label(recipe.metric)
    with style():
        figure = _curves_figure(lines, recipe, title)
    counts = [n for _, _, n in lines]
    band = "; band: ± one sd over seeds" if max(counts, default=0) > 1 else ""
    caption = f"{metric_label(recipe.metric)} after each epoch: mean, {seeds_text(counts)}{band}."
    key = slug(f"curves_{'_'.join(recipe.studies)}_{recipe.metric}")
    spots = tuple(
        Spot(figure.axes[0], epoch, mean, f"{label}, epoch {epoch}: {number(mean, 2)}")
        for label, table, _ in lines
        for epoch, mean in (table["mean"].items() if len(table) else ())
    )
    caption, study = said(recipe.caption, caption), recipe.studies[0]
    return Drawn(key, study, title, caption, figure, tuple(runs), tuple(missing), spots)


def _cell_label(cell: str, coords: dict[str, Any]) -> str:
    if set(map(str, coords.values())) <= {"on", "off"}:
        return " + ".join(k for k, v in coords.items() if v == "on") or "none"
    if len(coords) > 3:
        return f"trial {cell}"
    return ", ".join(f"{coordinate_name(k)} = {level(v)}" for k, v in coords.items())


def _curves_figure(lines: list[tuple[str, Any, int]], recipe: Curves, title: str) -> Figure:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    drawn = 0
    for i, (label, table, n) in enumerate(lines):
        if not len(table):
            continue
        drawn += 1
        colour = COLOURS[i % len(COLOURS)]
        dash = DASHES[(i // len(COLOURS) + i) % len(DASHES)]
        x, y = table.index.to_numpy(), table["mean"].to_numpy()
        axes.plot(
            x,
            y,
            color=colour,
            linestyle=dash,
            linewidth=1.8,
            label=f"{label} ({n})",
            marker="o" if len(x) < 8 else None,
            markersize=3.5,
        )
        sd = table["std"].to_numpy()
        if n > 1 and np.isfinite(sd).all():
            axes.fill_between(x, y - sd, y + sd, color=colour, alpha=0.18, linewidth=0)
    if not drawn:
        empty(axes)
    axes.set_xlabel("epoch")
    axes.set_ylabel(metric_label(recipe.metric))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    lined(axes)
    heading(axes, title)
    if drawn:
        legend(axes, drawn, "(number of seeds)")
    return figure
