"""Cost against quality: a cell's training cost and its metric, with the Pareto front."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Figure, FigureOptions
from reports.stats.describe import summarize
from reports.tables import labels
from reports.tables.cells import describe_metric, find_sign, find_unit, group_by_cell
from trainables.words.metrics import display_scale, format_metric_label

COSTS = {"seconds": "seconds of training", "epochs": "epochs", "steps": "steps"}
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
LOG_RATIO = 10.0  # of the largest to the smallest cost, from which the axis is logarithmic


class CostOptions(FigureOptions):
    """Options of `cost`.

    cost: the cost of a trial: seconds of training, epochs or steps.
    """

    several = True
    cost: Literal["seconds", "epochs", "steps"] = "seconds"


@dataclass(frozen=True)
class CostPoint:
    """Mean cost and mean metric, in the displayed unit, of a cell over n seeds or splits."""

    study: str
    cell: str
    cost: float
    value: float
    n: int


@plot.figure(CostOptions)
def cost(frame: Frame, recipe: Figure, options: CostOptions) -> plot.DrawnFigure:
    """Draw one mark per cell at its mean cost and metric; a line joins the Pareto-optimal cells."""
    import pandas as pd

    metric, studies = recipe.metric, recipe.studies
    name, axis = format_metric_label(metric), COSTS[options.cost]
    by_study = {study: collect_cost_points(frame, study, metric, options.cost) for study in studies}
    selected = [frame.select_study(study) for study in studies]
    has_folds = any(cells["fold"].notna().any() for cells in selected)
    points = [point for study_points in by_study.values() for point in study_points]
    costs, values = [point.cost for point in points], [point.value for point in points]
    title = labels.replace_greek_names(recipe.title) or f"{name} against {axis}"
    legend_lines = math.ceil(len(studies) / 2) if len(studies) > 1 else 0  # of two studies each
    drawing, panel = plot.create_single_panel(title, plot.HEIGHT + plot.LINE * legend_lines)
    # marks of the cells
    spots = []
    for i, (study, study_points) in enumerate(by_study.items()):
        panel.scatter(
            [point.cost for point in study_points],
            [point.value for point in study_points],
            s=22,
            c=plot.COLOURS[i % len(plot.COLOURS)],
            marker=MARKS[i % len(MARKS)],
            label=study,
            rasterized=len(study_points) > plot.MAX_TOOLTIPS,
            zorder=3,
        )
        for point in study_points:
            price = labels.format_number(point.cost, 1 if point.cost < 100 else 0)
            text = f"{labels.format_number(point.value, 2)}, {price} {options.cost}"
            tip = f"{study}, {point.cell}: {text}"
            spots.append(plot.Tooltip(panel, point.cost, point.value, tip))
    # axes
    if not points:
        plot.draw_empty_message(panel)
    elif min(costs) > 0 and max(costs) >= LOG_RATIO * min(costs):
        panel.set_xscale("log")
        plot.set_log_ticks(panel, min(costs), max(costs))
    panel.set(xlabel=f"{axis} per {'seed' if has_folds else 'trial'}", ylabel=name)
    panel.grid()
    if legend_lines:
        drawing.legend(loc="outside lower left", ncols=2)
    # caption and Pareto front
    units = plot.name_units(selected)
    payer = "a seed, the sum over its folds" if has_folds else "a trial"
    caption = (
        f"{describe_metric(frame, metric)}, against {axis} of {payer}: means of {len(points)} "
        f"cells, {plot.format_counts([point.n for point in points], units)} each."
    )
    sign = find_sign(frame, studies[0], metric)
    if front := [points[i] for i in find_pareto_front(costs, [sign * value for value in values])]:
        x, y = [point.cost for point in front], [point.value for point in front]
        panel.step(x, y, where="post", color="black", linewidth=1.1, linestyle="--", zorder=2)
        panel.scatter(x, y, s=60, facecolors="none", edgecolors="black", linewidths=1, zorder=4)
        names = ", ".join(p.cell if len(studies) == 1 else f"{p.study} {p.cell}" for p in front)
        caption += f" Dashed: the Pareto front, which no cell beats in both: {names}."
    if options.cost == "seconds":
        caption += " Seconds depend on the machine and on what else ran on it."
    cells = pd.concat(selected)
    key = f"cost_{'_'.join(studies)}_{metric}_{options.cost}"
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption, key=key)


def collect_cost_points(frame: Frame, study: str, metric: str, cost: str) -> list[CostPoint]:
    """Return a point for each cell of a study with results: its mean cost and mean metric.

    With folds, the cost of a seed is the sum over its folds. Costs are means over what values are
    means over: the seeds of a split, and searches.
    """
    cells = frame.select_study(study)
    if cost not in cells:
        return []
    unit = find_unit(cells)
    keys = list(dict.fromkeys(["cell", unit, "seed", "search"]))
    costs = cells.groupby(keys, sort=False, dropna=False)[cost].sum(min_count=1)  # over folds
    costs = costs.groupby(["cell", unit], sort=False).mean().to_dict()
    scale = display_scale(metric)
    points = []
    for cell, values in group_by_cell(cells, metric).items():
        quality = summarize(list(values.values()))
        price = summarize([costs[cell, key] for key in values])
        if quality is not None and price is not None:
            points.append(CostPoint(study, cell, price.mean, quality.mean * scale, quality.n))
    return points


def find_pareto_front(costs: Sequence[float], values: Sequence[float]) -> tuple[int, ...]:
    """Return the indices of the points that no other point dominates, the cheapest first.

    A point dominates another if it costs no more, has no smaller value, and is better in cost or
    value. Equal points are on the front together; points that are not finite are never on it.
    """
    front: list[int] = []
    for i in map(int, np.lexsort((-np.asarray(values), np.asarray(costs)))):
        point = (costs[i], values[i])
        # costs rise, so a point is on the front if its value exceeds that of the front's last point
        last = (costs[front[-1]], values[front[-1]]) if front else (0.0, -np.inf)
        if np.isfinite(point).all() and (point[1] > last[1] or point == last):
            front.append(i)
    return tuple(front)
