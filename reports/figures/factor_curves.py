"""Curves over one factor: a paper's "metric against γ", with an interval over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.errors import ReportError
from reports.figures.drawn import (
    COLOURS,
    DASHES,
    Canvas,
    Drawn,
    Spot,
    empty,
    finish,
    legend,
    lined,
    ordered,
    seeds_text,
    single,
    style,
)
from reports.frame import Frame
from reports.recipe import FactorCurves, level_name
from reports.stats.describe import Summary, bootstrap_interval, summary, t_interval
from reports.tables.cells import by_seed, coordinates, protocol
from reports.tables.labels import (
    coordinate_name,
    greek,
    level,
    metric_label,
    number,
    scale,
    ticks,
)

if TYPE_CHECKING:
    import pandas as pd

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
    """Draw the metric at each level of `recipe.x`, a line per combination of the other levels.

    Raises:
        ReportError: unknown study, or no cell that has `recipe.x` and is at `recipe.at`.
    """
    import pandas as pd

    chosen = {study: _choose(frame, study, recipe) for study in recipe.studies}
    lines = [
        line
        for study, cells in chosen.items()
        for line in lines_of(cells, recipe, study if len(chosen) > 1 else "")
    ]
    metric, factor = recipe.metric, coordinate_name(recipe.x)
    title = greek(recipe.title) or f"{metric_label(metric)} against {factor}"
    axis = axis_kind(list({x for line in lines for x in line.x}), recipe.log)
    place = _places(lines, axis)
    with style():
        drawing = _draw(lines, recipe, title, axis, place)
    counts = [n for line in lines for n in line.n]
    bars = f", bars: {INTERVALS[recipe.interval]} over seeds" if max(counts, default=0) > 1 else ""
    held = ", ".join(f"{coordinate_name(k)} = {level(v)}" for k, v in recipe.at.items())
    caption = (
        f"{metric_label(metric)}, {protocol(frame)}: mean{bars}, {seeds_text(counts)}"
        f" for each level of {factor}{f', at {held}' if held else ''}."
    )
    spots = []
    for line in lines:
        columns = (line.x, line.mean, line.low, line.high, line.n)
        for x, mean, low, high, n in zip(*columns, strict=True):
            ends = "" if np.isnan(low) else f" [{number(low, 2)}, {number(high, 2)}]"
            name = ", ".join(filter(None, (line.label, f"{factor} = {level(x)}")))
            words = f"{name}: {number(mean, 2)}{ends}, n = {n}"
            spots.append(Spot(drawing.axes[0], place[x], mean, words))
    key = f"factor_{'_'.join(recipe.studies)}_{recipe.x}_{metric}"
    return finish(
        recipe, pd.concat(chosen.values()), drawing, spots, title=title, caption=caption, key=key
    )


def _places(lines: list[Line], kind: str) -> dict[Any, float]:
    """Return where each level stands on the axis."""
    levels = ordered([x for line in lines for x in line.x])
    return {x: i if kind == "words" else x for i, x in enumerate(levels)}


def _choose(frame: Frame, study: str, recipe: FactorCurves) -> pd.DataFrame:
    """Return the cells of a study that have the factor and are at the levels that are held."""
    import pandas as pd

    cells = frame.study(study)
    cells = cells.assign(coords=pd.Series(coordinates(frame, cells), index=cells.index))
    held = {name: level(value) for name, value in recipe.at.items()}
    fits = [
        recipe.x in coords and held == {name: level(level_name(coords.get(name))) for name in held}
        for coords in cells["coords"]
    ]
    if not any(fits):
        known = ", ".join(dict.fromkeys(name for coords in cells["coords"] for name in coords))
        raise ReportError(
            f"report: no cell of {study} has {recipe.x} at {recipe.at or 'any level'}; "
            f"its coordinates are {known}"
        )
    return cells[fits]


def lines_of(cells: pd.DataFrame, recipe: FactorCurves, prefix: str = "") -> list[Line]:
    """Return the lines of one study's cells, in the order of its plan.

    A combination of the other coordinates with one level of x is a point of another factor's arm
    (a one-factor study lists its centre once): it is left out where another one has several.
    """
    groups: dict[tuple[tuple[str, str], ...], pd.DataFrame] = {}
    others = [
        tuple((k, level(level_name(v))) for k, v in coords.items() if k != recipe.x)
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
    """Return a level on the axis: a number, or what it is called."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else level(level_name(value))


def _interval(values: list[float], found: Summary, kind: str) -> tuple[float, float]:
    if found.sd is None:
        return np.nan, np.nan
    if kind == "sd":
        return found.mean - found.sd, found.mean + found.sd
    ends = t_interval(values) if kind == "t" else bootstrap_interval(values)
    return ends or (np.nan, np.nan)


def axis_kind(levels: list[Any], log: bool | None) -> str:
    """Return `words`, `linear`, `log`, or `symlog` (log with zero) for the levels of a factor.

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
    """Return the spread of the steps between points relative to their mean."""
    steps = np.array([b - a for a, b in pairwise(points)])
    return float(steps.std() / steps.mean())


def _draw(
    lines: list[Line], recipe: FactorCurves, title: str, kind: str, place: dict[Any, float]
) -> Canvas:
    drawing, axes = single(title)
    levels = list(place)
    if kind in ("log", "symlog"):
        options = {"linthresh": min(x for x in levels if x > 0)} if kind == "symlog" else {}
        axes.set_xscale(kind, **options)
    for i, line in enumerate(lines):
        dash = "none" if kind == "words" else DASHES[(i // len(COLOURS) + i) % len(DASHES)]
        xs, mean = [place[x] for x in line.x], np.array(line.mean)
        ends = np.abs(np.array([line.low, line.high]) - mean)  # NaN: one seed, no bar
        axes.errorbar(
            xs,
            mean,
            yerr=ends if xs else None,
            color=COLOURS[i % len(COLOURS)],
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
        axes.xaxis.set_ticks([], minor=True)
    axes.set_xlabel(coordinate_name(recipe.x))
    axes.set_ylabel(metric_label(recipe.metric))
    lined(axes)
    if named := sum(bool(line.label) for line in lines):
        legend(axes, named)
    return drawing
