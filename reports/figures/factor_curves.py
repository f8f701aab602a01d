"""Curves over one factor: a paper's "metric against γ", with an interval over seeds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import reports.figures.figure as plot
from reports.frame import DataFrame, Frame
from reports.recipe import FactorCurves, to_level_name
from reports.stats.describe import summarize, t_interval
from reports.tables import labels
from reports.tables.cells import complete_coordinates, find_protocol, group_by_seed
from trainables.words.metrics import display_scale, format_metric_label

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
    """Draw a metric over the factor `recipe.x`, a line per combination of the other levels."""
    import pandas as pd

    metric, factor = recipe.metric, labels.format_coordinate(recipe.x)
    metric_label = format_metric_label(metric)
    cells = [_select_factor_cells(frame, study, recipe) for study in recipe.studies]
    prefixes = recipe.studies if len(cells) > 1 else [""]
    lines: list[Line] = []
    for rows, prefix in zip(cells, prefixes, strict=True):
        lines += collect_lines(rows, recipe, prefix)
    title = labels.replace_greek_names(recipe.title) or f"{metric_label} against {factor}"
    drawing, axes = plot.create_single_panel(title)
    # the axis of the factor
    levels = plot.sort_levels([x for line in lines for x in line.x])
    scale = choose_axis_scale(levels)
    positions = {x: i if scale == "words" else x for i, x in enumerate(levels)}
    if scale == "log":
        axes.set_xscale("log")
    elif scale == "symlog":
        axes.set_xscale("symlog", linthresh=min(x for x in levels if x > 0))
    # lines, bars and tooltips
    spots = []
    for i, line in enumerate(lines):
        style: dict[str, Any] = {**plot.select_line_style(i), "marker": "o", "linewidth": 1.8}
        if scale == "words":
            style["linestyle"] = "none"
        bars = np.abs(np.array([line.low, line.high]) - np.array(line.mean))  # NaN: no bar
        x_positions = [positions[x] for x in line.x]
        axes.errorbar(
            x_positions, line.mean, bars, elinewidth=1.1, label=line.label or None, **style
        )
        for x, mean, low, high, n in zip(
            line.x, line.mean, line.low, line.high, line.n, strict=True
        ):
            name = ", ".join(filter(None, (line.label, f"{factor} = {labels.format_level(x)}")))
            value = labels.format_number(mean, 2)
            if not np.isnan(low):
                value += f" [{labels.format_number(low, 2)}, {labels.format_number(high, 2)}]"
            spots.append(plot.Tooltip(axes, positions[x], mean, f"{name}: {value}, n = {n}"))
    # labels and caption
    if not levels:
        plot.draw_empty_message(axes)
    elif scale != "linear":
        axes.set_xticks([positions[x] for x in levels], list(map(labels.format_level, levels)))
        axes.xaxis.set_ticks([], minor=True)
    axes.set(xlabel=factor, ylabel=metric_label)
    axes.grid()
    if any(line.label for line in lines):
        plot.draw_legend(axes, len(lines))
    counts = [n for line in lines for n in line.n]
    units = plot.name_units(cells)
    bars_text = f", bars: 95 % t interval of the mean over {units}"
    if max(counts, default=0) <= 1:
        bars_text = ""
    held = ", ".join(
        f"{labels.format_coordinate(k)} = {labels.format_level(v)}" for k, v in recipe.at.items()
    )
    caption = (
        f"{metric_label}, {find_protocol(frame)}: mean{bars_text}, "
        f"{plot.format_counts(counts, units)} for each level of "
        f"{factor}{f', at {held}' if held else ''}."
    )
    key = f"factor_{'_'.join(recipe.studies)}_{recipe.x}_{metric}"
    rows = pd.concat(cells)
    return plot.build_figure(recipe, rows, drawing, spots, title=title, caption=caption, key=key)


def _select_factor_cells(frame: Frame, study: str, recipe: FactorCurves) -> DataFrame:
    """Return a study's cells that have the factor `recipe.x` and all levels in `recipe.at`."""
    import pandas as pd

    cells = frame.select_combinations(study)
    cells = cells.assign(coords=pd.Series(complete_coordinates(frame, cells), index=cells.index))
    held = {(name, labels.format_level(value)) for name, value in recipe.at.items()}
    levels = [{*_list_level_names(coords)} for coords in cells["coords"]]  # {(factor, level)}
    return cells[[recipe.x in dict(pairs) and held <= pairs for pairs in levels]]


def collect_lines(cells: DataFrame, recipe: FactorCurves, prefix: str = "") -> list[Line]:
    """Return a line over `recipe.x` for each combination of the other coordinates' levels.

    If some combination has several levels of x, combinations with a single level are left out: in
    a one-factor study, they are cells that vary another factor.
    """
    x = [_to_axis_value(coords[recipe.x]) for coords in cells["coords"]]
    names = [_list_level_names(coords) for coords in cells["coords"]]
    others = [tuple(item for item in levels if item[0] != recipe.x) for levels in names]
    cells = cells.assign(x=x)
    groups = {key: cells[[other == key for other in others]] for key in dict.fromkeys(others)}
    if any(rows["x"].nunique() > 1 for rows in groups.values()):
        groups = {key: rows for key, rows in groups.items() if rows["x"].nunique() > 1}
    # coordinates in which two lines differ, for the legend
    varied = {name for a in groups for b in groups for name, _ in {*a} ^ {*b}}  # ^: in one alone
    lines = []
    for key, rows in groups.items():
        levels = ", ".join(f"{labels.format_coordinate(k)} = {v}" for k, v in key if k in varied)
        lines.append(_build_line(rows, recipe.metric, ": ".join(filter(None, [prefix, levels]))))
    return [line for line in lines if line.x]


def _build_line(cells: DataFrame, metric: str, label: str) -> Line:
    """Return the line of a metric's mean and 95 % interval at each level of x with a result."""
    scale = display_scale(metric)
    points: list[tuple[Any, float, float, float, int]] = []
    for x in plot.sort_levels(list(cells["x"])):
        rows = cells[[value == x for value in cells["x"]]]
        values = list(group_by_seed(rows, metric).values())
        if result := summarize(values):
            low, high = t_interval(values) or (np.nan, np.nan)
            points.append((x, result.mean * scale, low * scale, high * scale, result.n))
    return Line(label, *(list(zip(*points, strict=True)) or [()] * 5))  # (): there is no point


def _list_level_names(coords: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, labels.format_level(to_level_name(value))) for name, value in coords.items()]


def _to_axis_value(value: Any) -> Any:
    """Return a level on the axis: a number, or its name."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return labels.format_level(to_level_name(value))


def choose_axis_scale(levels: list[Any]) -> str:
    """Return `words`, `linear`, `log`, or `symlog` (log with zero) for the levels of a factor.

    The axis is logarithmic if at least three positive levels span a factor of ten, and the ratios
    between neighbouring levels are more alike than their differences.
    """
    if any(isinstance(level, str) for level in levels):
        return "words"
    numbers = np.array(sorted(levels), dtype=float)
    positive = numbers[numbers > 0]
    if len(positive) < 3 or numbers[0] < 0 or positive[-1] < DECADE * positive[0]:
        return "linear"
    ratios, differences = np.diff(np.log(positive)), np.diff(positive)
    if ratios.std() / ratios.mean() >= differences.std() / differences.mean():
        return "linear"
    return "log" if len(positive) == len(numbers) else "symlog"
