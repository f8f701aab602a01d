"""Cost against quality: what a cell's training took and what it gave, with the Pareto front."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes as Panel
from matplotlib.figure import Figure as Canvas

from reports.errors import ReportError
from reports.figures.drawn import (
    COLOURS,
    HEIGHT,
    LINE,
    MANY,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    lined,
    log_ticks,
    said,
    seeds_text,
    style,
)
from reports.frame import Frame
from reports.parts.figures import CostOptions
from reports.recipe import Figure
from reports.stats.describe import summary
from reports.stats.pareto import front
from reports.tables.cells import by_cell, gaps, protocol, run_ids
from reports.tables.labels import greek, lower_is_better, metric_label, number, scale, slug

COSTS = {"seconds": "seconds of training", "epochs": "epochs", "steps": "steps"}
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
ROOM = 110, 16  # pixels around a name of a point of the front
LETTERS = 20  # of a name
WIDE = 10.0  # from this ratio of costs on the axis is logarithmic


@dataclass(frozen=True)
class Point:
    """A cell: its mean cost, and its mean of the metric in the unit that is shown, over n seeds."""

    study: str
    cell: str
    cost: float
    value: float
    n: int


def points_of(frame: Frame, study: str, metric: str, cost: str) -> list[Point]:
    """The cells of a study that have both; with folds the cost of a seed is that of all of them.

    Raises:
        ReportError: no run of the sweep tells that cost.
    """
    cells = frame.study(study)
    if cost not in frame.metrics:
        raise ReportError(f"report.figures: found no {cost!r} of any run; expected it of each")
    paid = cells.groupby(["cell", "seed"], sort=False)[cost].sum(min_count=1)
    found = []
    for cell, values in by_cell(cells, metric).items():
        mean = summary(list(values.values()))
        price = summary([paid[cell, seed] for seed in values])
        if mean is not None and price is not None:
            found.append(Point(study, cell, price.mean, mean.mean * scale(metric), mean.n))
    return found


def cost(frame: Frame, recipe: Figure) -> Drawn:
    """A mark a cell; the line joins the cells that none beats in both cost and metric.

    Raises:
        ReportError: unknown study, or no run that tells the cost.
    """
    paid = CostOptions.model_validate(recipe.options).cost
    points = [p for study in recipe.studies for p in points_of(frame, study, recipe.metric, paid)]
    sign = -1 if lower_is_better(recipe.metric) else 1
    best = [points[i] for i in front([p.cost for p in points], [sign * p.value for p in points])]
    title = greek(recipe.title) or f"{metric_label(recipe.metric)} against {COSTS[paid]}"
    with style():
        figure = _figure(points, best, recipe, paid, title)
    panel = figure.axes[0]
    spots = tuple(
        Spot(panel, p.cost, p.value, f"{p.study}, {p.cell}: {number(p.value, 2)}, {_paid(p, paid)}")
        for p in points
    )
    names = ", ".join(p.cell if len(recipe.studies) == 1 else f"{p.study} {p.cell}" for p in best)
    caption = (
        f"{metric_label(recipe.metric)}, {protocol(frame)}, against {COSTS[paid]} of a trial: "
        f"means of {len(points)} cells, {seeds_text([p.n for p in points])} each."
    )
    if best:
        caption += f" Dashed: the Pareto front, which no cell beats in both: {names}."
    if paid == "seconds":
        caption += " Seconds are of the machines that ran them, beside what else ran there."
    cells = pd.concat([frame.study(study) for study in recipe.studies])
    return Drawn(
        slug(f"cost_{'_'.join(recipe.studies)}_{recipe.metric}_{paid}"),
        recipe.studies[0],
        title,
        said(recipe.caption, caption),
        figure,
        run_ids(cells),
        gaps(cells),
        spots,
    )


def _paid(point: Point, cost: str) -> str:
    return f"{number(point.cost, 1 if point.cost < 100 else 0)} {cost}"


def _figure(
    points: list[Point], best: list[Point], recipe: Figure, paid: str, title: str
) -> Canvas:
    below = LINE * -(-len(recipe.studies) // 2) if len(recipe.studies) > 1 else 0.0
    figure = Canvas(figsize=(WIDTH, HEIGHT + below), layout="constrained")
    panel = figure.add_subplot()
    for i, study in enumerate(recipe.studies):
        mine = [p for p in points if p.study == study]
        panel.scatter(
            [p.cost for p in mine],
            [p.value for p in mine],
            s=22,
            color=COLOURS[i % len(COLOURS)],
            marker=MARKS[i % len(MARKS)],
            label=study,
            rasterized=len(mine) > MANY,
            zorder=3,
        )
    if not points:
        empty(panel)
    costs = [p.cost for p in points]
    if costs and min(costs) > 0 and max(costs) >= WIDE * min(costs):
        panel.set_xscale("log")
        log_ticks(panel, min(costs), max(costs))
    panel.set_xlabel(f"{COSTS[paid]}, a trial")
    panel.set_ylabel(metric_label(recipe.metric))
    lined(panel)
    heading(panel, title)
    if len(recipe.studies) > 1:
        figure.legend(loc="outside lower left", ncols=2)
    if best:
        _front(figure, panel, best)
    return figure


def _front(figure: Canvas, panel: Panel, best: list[Point]) -> None:
    """The line, its points ringed, and the names of those that have room for one."""
    x, y = [p.cost for p in best], [p.value for p in best]
    panel.step(x, y, where="post", color="black", linewidth=1.1, linestyle="--", zorder=2)
    panel.scatter(x, y, s=60, facecolors="none", edgecolors="black", linewidths=1, zorder=4)
    panel.margins(x=0.08, y=0.1)
    figure.draw_without_rendering()  # so that marks know where they are
    taken: list[tuple[float, float]] = []
    for p in reversed(best):
        at = panel.transData.transform((p.cost, p.value))
        if any(abs(at[0] - a) < ROOM[0] and abs(at[1] - b) < ROOM[1] for a, b in taken):
            continue
        taken.append((at[0], at[1]))
        panel.annotate(
            p.cell if len(p.cell) <= LETTERS else f"{p.cell[: LETTERS - 1]}…",
            (p.cost, p.value),
            xytext=(-6, 5),
            textcoords="offset points",
            ha="right",
            va="bottom",
        )
