"""Curves over one factor: a paper's "metric against γ", with an interval over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import reports.figures.figure as plot
from reports.errors import ReportError
from reports.frame import Frame
from reports.recipe import FactorCurves, to_level_name
from reports.stats.describe import summarize, t_interval
from reports.tables import labels
from reports.tables.cells import complete_coordinates, find_protocol, group_by_seed

if TYPE_CHECKING:
    import pandas as pd

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


@plot.use_report_style()
def draw_factor_curves(frame: Frame, recipe: FactorCurves) -> plot.DrawnFigure:
    """Draw the metric at each level of `recipe.x`, a line per combination of the other levels.

    Raises:
        ReportError: unknown study, or no cell that has `recipe.x` and is at `recipe.at`.
    """
    import pandas as pd

    chosen = {study: _select_factor_cells(frame, study, recipe) for study in recipe.studies}
    lines = [
        line
        for study, cells in chosen.items()
        for line in collect_lines(cells, recipe, study if len(chosen) > 1 else "")
    ]
    metric, factor = recipe.metric, labels.format_coordinate(recipe.x)
    title = (
        labels.replace_greek_names(recipe.title)
        or f"{labels.format_metric_label(metric)} against {factor}"
    )
    levels = plot.sort_levels([x for line in lines for x in line.x])
    kind = choose_axis_scale(levels)
    position = {x: i if kind == "words" else x for i, x in enumerate(levels)}
    drawing, axes = plot.create_single_panel(title)
    if kind in ("log", "symlog"):
        options = {"linthresh": min(x for x in levels if x > 0)} if kind == "symlog" else {}
        axes.set_xscale(kind, **options)
    spots = []
    for i, line in enumerate(lines):
        ends = np.abs(np.array([line.low, line.high]) - np.array(line.mean))  # NaN: no bar
        shape: dict[str, Any] = {**plot.select_line_style(i), "marker": "o", "linewidth": 1.8}
        if kind == "words":
            shape["linestyle"] = "none"
        at, bars = [position[x] for x in line.x], ends if line.x else None
        axes.errorbar(at, line.mean, bars, elinewidth=1.1, label=line.label or None, **shape)
        for x, mean, low, high, n in zip(
            line.x, line.mean, line.low, line.high, line.n, strict=True
        ):
            interval = (
                ""
                if np.isnan(low)
                else f" [{labels.format_number(low, 2)}, {labels.format_number(high, 2)}]"
            )
            name = ", ".join(filter(None, (line.label, f"{factor} = {labels.format_level(x)}")))
            words = f"{name}: {labels.format_number(mean, 2)}{interval}, n = {n}"
            spots.append(plot.Tooltip(axes, position[x], mean, words))
    if not levels:
        plot.draw_empty_message(axes)
    elif kind != "linear":
        axes.set_xticks(
            [position[x] for x in levels], [labels.format_level(level) for level in levels]
        )
        axes.xaxis.set_ticks([], minor=True)
    axes.set(xlabel=factor, ylabel=labels.format_metric_label(metric))
    axes.grid()
    if labelled := sum(bool(line.label) for line in lines):
        plot.draw_legend(axes, labelled)
    counts = [n for line in lines for n in line.n]
    bars = ", bars: 95 % t interval of the mean over seeds" if max(counts, default=0) > 1 else ""
    held = ", ".join(
        f"{labels.format_coordinate(k)} = {labels.format_level(v)}" for k, v in recipe.at.items()
    )
    caption = (
        f"{labels.format_metric_label(metric)}, {find_protocol(frame)}: mean{bars}, "
        f"{plot.format_seed_counts(counts)} for each level of "
        f"{factor}{f', at {held}' if held else ''}."
    )
    cells = pd.concat(chosen.values())
    key = f"factor_{'_'.join(recipe.studies)}_{recipe.x}_{metric}"
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption, key=key)


def _select_factor_cells(frame: Frame, study: str, recipe: FactorCurves) -> pd.DataFrame:
    """Return the cells of a study that have the factor and are at the levels that are held."""
    import pandas as pd

    cells = frame.select_study(study)
    cells = cells.assign(coords=pd.Series(complete_coordinates(frame, cells), index=cells.index))
    fits = [
        recipe.x in coords
        and all(
            _format_level_name(coords.get(name)) == labels.format_level(value)
            for name, value in recipe.at.items()
        )
        for coords in cells["coords"]
    ]
    if not any(fits):
        factor_names = ", ".join(
            dict.fromkeys(name for coords in cells["coords"] for name in coords)
        )
        raise ReportError(
            f"report: no cell of {study} has a value of {recipe.x} with "
            f"{recipe.at or 'any coordinates'}. "
            f"Its coordinates are {factor_names}."
        )
    return cells[fits]


def collect_lines(cells: pd.DataFrame, recipe: FactorCurves, prefix: str = "") -> list[Line]:
    """Return the lines of one study's cells, in the order of its plan.

    A combination of the other coordinates with one level of x is a point of another factor's arm
    (a one-factor study lists its centre once): it is left out where another one has several.
    """
    x = [_locate_level(coords[recipe.x]) for coords in cells["coords"]]
    others = [
        tuple((k, _format_level_name(v)) for k, v in coords.items() if k != recipe.x)
        for coords in cells["coords"]
    ]
    cells = cells.assign(x=x, others=others)
    groups = {key: cells[[other == key for other in others]] for key in dict.fromkeys(others)}
    if any(rows["x"].nunique() > 1 for rows in groups.values()):
        groups = {key: rows for key, rows in groups.items() if rows["x"].nunique() > 1}
    varied = {k for a in groups for b in groups for k, _ in set(a) ^ set(b)}
    lines = []
    for key, rows in groups.items():
        words = ", ".join(f"{labels.format_coordinate(k)} = {v}" for k, v in key if k in varied)
        lines.append(_build_line(rows, recipe, ": ".join(filter(None, [prefix, words]))))
    return lines


def _build_line(cells: pd.DataFrame, recipe: FactorCurves, label: str) -> Line:
    factor = labels.display_scale(recipe.metric)
    points: list[tuple[Any, float, float, float, int]] = []
    for x in plot.sort_levels(list(cells["x"])):
        values = list(
            group_by_seed(cells[[value == x for value in cells["x"]]], recipe.metric).values()
        )
        if (result := summarize(values)) is None:
            continue
        low, high = t_interval(values) or (np.nan, np.nan)
        points.append((x, result.mean * factor, low * factor, high * factor, result.n))
    return Line(label, *(list(zip(*points, strict=True)) or [()] * 5))


def _format_level_name(value: Any) -> str:
    return labels.format_level(to_level_name(value))


def _locate_level(value: Any) -> Any:
    """Return a level on the axis: a number, or what it is called."""
    return (
        _format_level_name(value)
        if isinstance(value, bool) or not isinstance(value, int | float)
        else value
    )


def choose_axis_scale(levels: list[Any]) -> str:
    """Return `words`, `linear`, `log`, or `symlog` (log with zero) for the levels of a factor.

    Logarithmic where three or more positive levels span a decade and their ratios are
    more alike than their differences.
    """
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in levels):
        return "words"
    numbers = np.array(sorted(levels), dtype=float)
    positive = numbers[numbers > 0]
    if len(positive) < 3 or numbers[0] < 0 or positive[-1] < DECADE * positive[0]:
        return "linear"
    ratios, differences = np.diff(np.log(positive)), np.diff(positive)
    if ratios.std() / ratios.mean() >= differences.std() / differences.mean():
        return "linear"
    return "log" if len(positive) == len(numbers) else "symlog"
