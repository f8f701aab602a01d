"""Curves over one factor: a paper's "metric against γ", with an interval over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from reports.errors import ReportError
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
    ordered,
    said,
    seeds_text,
    style,
)
from reports.frame import Frame
from reports.parts.base import level_name as named
from reports.recipe import FactorCurves
from reports.stats.describe import Summary, bootstrap_interval, summary, t_interval
from reports.tables.cells import by_seed, coordinates, gaps, protocol
from reports.tables.labels import (
    coordinate_name,
    greek,
    level,
    metric_label,
    number,
    scale,
    slug,
    ticks,
)

INTERVALS = {
    "t": "95 % t interval of the mean",
    "bootstrap": "95 % percentile bootstrap interval of the mean",
    "sd": "± one sd",
}
DECADE = 10.0


@dataclass(frozen=True)
class Line:
    """One line: levels of x, and at each the mean, the interval's ends (NaN for n < 2) and n."""

    label: str
    x: tuple[Any, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: tuple[int, ...]


def factor_curves(frame: Frame, recipe: FactorCurves) -> Drawn:
    """The metric at each level of `recipe.x`, one line per combination of the other levels.

    Raises:
        ReportError: unknown study, or no cell that has `recipe.x` and is at `recipe.at`.
    """
    lines: list[Line] = []
    missing: list[str] = []
    runs: list[str] = []
    for study in recipe.studies:
        cells = frame.study(study)
        cells = cells.assign(coords=pd.Series(coordinates(frame, cells), index=cells.index))
        cells = _chosen(cells, study, recipe)
        prefix = study if len(recipe.studies) > 1 else ""
        lines += lines_of(cells, recipe, prefix)
        missing += gaps(cells)
        runs += [run for run in cells["run_id"] if run]
    title = (
        greek(recipe.title) or f"{metric_label(recipe.metric)} against {coordinate_name(recipe.x)}"
    )
    axis = axis_kind(list({x for line in lines for x in line.x}), recipe.log)
    with style():
        figure = _figure(lines, recipe, title, axis)
    counts = [n for line in lines for n in line.n]
    bars = f", bars: {INTERVALS[recipe.interval]} over seeds" if max(counts, default=0) > 1 else ""
    held = ", ".join(f"{coordinate_name(k)} = {level(v)}" for k, v in recipe.at.items())
    caption = (
        f"{metric_label(recipe.metric)}, {protocol(frame)}: mean{bars}, {seeds_text(counts)}"
        f" for each level of {coordinate_name(recipe.x)}{f', at {held}' if held else ''}."
    )
    key = slug(f"factor_{'_'.join(recipe.studies)}_{recipe.x}_{recipe.metric}")
    caption = said(recipe.caption, caption)
    spots = _spots(figure.axes[0], lines, recipe, axis)
    study = recipe.studies[0]
    return Drawn(key, study, title, caption, figure, tuple(runs), tuple(missing), spots)


def _spots(axes: Axes, lines: list[Line], recipe: FactorCurves, kind: str) -> tuple[Spot, ...]:
    place = _places(lines, kind)
    return tuple(
        Spot(
            axes,
            place[x],
            mean,
            f"{f'{line.label}, ' if line.label else ''}{coordinate_name(recipe.x)} = {level(x)}: "
            f"{number(mean, 2)}"
            f"{'' if np.isnan(low) else f' [{number(low, 2)}, {number(high, 2)}]'}, n = {n}",
        )
        for line in lines
        for x, mean, low, high, n in zip(
            line.x, line.mean, line.low, line.high, line.n, strict=True
        )
    )


def _places(lines: list[Line], kind: str) -> dict[Any, float]:
    """Where a level stands on the axis."""
    levels = ordered([x for line in lines for x in line.x])
    return {x: i if kind == "words" else x for i, x in enumerate(levels)}


def _chosen(cells: pd.DataFrame, study: str, recipe: FactorCurves) -> pd.DataFrame:
    def fits(coords: dict[str, Any]) -> bool:
        held = all(level(named(coords.get(k))) == level(v) for k, v in recipe.at.items())
        return recipe.x in coords and held

    chosen = cells[[fits(coords) for coords in cells["coords"]]]
    if not len(chosen):
        known = ", ".join(dict.fromkeys(name for coords in cells["coords"] for name in coords))
        raise ReportError(
            f"report: found no cell of {study} with {recipe.x} at {recipe.at or 'any level'}; "
            f"its coordinates are {known}"
        )
    return chosen


def lines_of(cells: pd.DataFrame, recipe: FactorCurves, prefix: str = "") -> list[Line]:
    """The lines of one study's cells, in the order of its plan.

    A combination of the other coordinates with one level of x is a point of another factor's arm
    (a one-factor study lists its centre once): it is left out where another one has several.
    """
    groups: dict[tuple[tuple[str, str], ...], pd.DataFrame] = {}
    others = [
        tuple((k, level(named(v))) for k, v in coords.items() if k != recipe.x)
        for coords in cells["coords"]
    ]
    for key in dict.fromkeys(others):
        groups[key] = cells[[other == key for other in others]]
    levels = {key: {_place(c[recipe.x]) for c in mine["coords"]} for key, mine in groups.items()}
    if any(len(values_of) > 1 for values_of in levels.values()):
        groups = {key: mine for key, mine in groups.items() if len(levels[key]) > 1}
    varied = {k for a in groups for b in groups for k, _ in set(a) ^ set(b)}
    lines = []
    for key, mine in groups.items():
        words = ", ".join(f"{coordinate_name(k)} = {v}" for k, v in key if k in varied)
        lines.append(_line(mine, recipe, ": ".join(filter(None, [prefix, words]))))
    return lines


def _line(cells: pd.DataFrame, recipe: FactorCurves, label: str) -> Line:
    factor = scale(recipe.metric)
    rows: list[tuple[Any, float, float, float, int]] = []
    at = [_place(coords[recipe.x]) for coords in cells["coords"]]
    for x in ordered(at):
        here = by_seed(cells[[value == x for value in at]], recipe.metric)
        over_seeds = summary(list(here.values()))
        if over_seeds is None:
            continue
        low, high = _interval(list(here.values()), over_seeds, recipe.interval)
        rows.append((x, over_seeds.mean * factor, low * factor, high * factor, over_seeds.n))
    columns = list(zip(*rows, strict=True)) or [()] * 5
    return Line(label, *columns)


def _place(value: Any) -> Any:
    """A level on the axis: a number, or what it is called."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else level(named(value))


def _interval(values: list[float], found: Summary, kind: str) -> tuple[float, float]:
    if found.sd is None:
        return np.nan, np.nan
    if kind == "sd":
        return found.mean - found.sd, found.mean + found.sd
    ends = t_interval(values) if kind == "t" else bootstrap_interval(values)
    return ends or (np.nan, np.nan)


def axis_kind(levels: list[Any], log: bool | None) -> str:
    """`words`, `linear`, `log`, or `symlog` (log with zero) for the levels of a factor.

    By itself logarithmic where three or more positive levels span a decade and their ratios are
    more alike than their differences.
    """
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in levels):
        return "words"
    numbers = sorted(float(v) for v in levels)
    positive = np.array([v for v in numbers if v > 0])
    if log is None:
        log = len(positive) > 2 and positive[-1] >= DECADE * positive[0] and numbers[0] >= 0
        log = log and _uneven(np.log(positive)) < _uneven(positive)
    if not log or not len(positive) or numbers[0] < 0:
        return "linear"
    return "log" if len(positive) == len(numbers) else "symlog"


def _uneven(points: Any) -> float:
    """Spread of the steps between points relative to their mean."""
    steps = np.array([b - a for a, b in pairwise(points)])
    return float(steps.std() / steps.mean())


def _figure(lines: list[Line], recipe: FactorCurves, title: str, kind: str) -> Figure:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    place = _places(lines, kind)
    levels = list(place)
    if kind in ("log", "symlog"):
        options = {"linthresh": min(x for x in levels if x > 0)} if kind == "symlog" else {}
        axes.set_xscale(kind, **options)
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        dash = "none" if kind == "words" else DASHES[(i // len(COLOURS) + i) % len(DASHES)]
        xs, mean = [place[x] for x in line.x], np.array(line.mean)
        ends = np.abs(np.array([line.low, line.high]) - mean)  # NaN: one seed, no bar
        axes.errorbar(
            xs,
            mean,
            yerr=ends if xs else None,
            color=colour,
            linestyle=dash,
            marker="o",
            linewidth=1.8,
            markersize=4,
            elinewidth=1.1,
            capsize=3,
            label=line.label or None,
        )
    if not levels:
        empty(axes)
    if kind != "linear" and levels:
        axes.set_xticks([place[x] for x in levels], ticks(levels))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(coordinate_name(recipe.x))
    axes.set_ylabel(metric_label(recipe.metric))
    lined(axes)
    heading(axes, title)
    if any(line.label for line in lines):
        legend(axes, sum(bool(line.label) for line in lines))
    return figure
