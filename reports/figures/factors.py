"""The effects of factors: curves over one, interactions of two, the share of each component."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.frame import DataFrame, Frame
from reports.recipe import FactorCurvesOptions, Figure, FigureOptions, to_level_name
from reports.stats.describe import summarize, t_interval
from reports.stats.factorial import Effect
from reports.tables import labels
from reports.tables.cells import Cells, Levels, complete_coordinates, find_protocol, group_by_seed
from reports.tables.effects import (
    StudyFactorial,
    attribute_with_error,
    explain_attribution,
    fit_study,
)
from trainables.words.metrics import (
    display_scale,
    format_difference_label,
    format_metric_label,
    is_share,
)

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


@plot.figure(FactorCurvesOptions)
def factor_curves(frame: Frame, recipe: Figure, options: FactorCurvesOptions) -> plot.DrawnFigure:
    """Draw a metric over the factor `options.x`, a line per combination of the other levels."""
    import pandas as pd

    metric, factor = recipe.metric, labels.format_coordinate(options.x)
    metric_label = format_metric_label(metric)
    cells = [_select_factor_cells(frame, study, options) for study in recipe.studies]
    prefixes = recipe.studies if len(cells) > 1 else [""]
    lines: list[Line] = []
    for rows, prefix in zip(cells, prefixes, strict=True):
        lines += collect_lines(rows, options, metric, prefix)
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
        f"{labels.format_coordinate(k)} = {labels.format_level(v)}" for k, v in options.at.items()
    )
    caption = (
        f"{metric_label}, {find_protocol(frame)}: mean{bars_text}, "
        f"{plot.format_counts(counts, units)} for each level of "
        f"{factor}{f', at {held}' if held else ''}."
    )
    key = f"factor_{'_'.join(recipe.studies)}_{options.x}_{metric}"
    rows = pd.concat(cells)
    return plot.build_figure(recipe, rows, drawing, spots, title=title, caption=caption, key=key)


def _select_factor_cells(frame: Frame, study: str, options: FactorCurvesOptions) -> DataFrame:
    """Return a study's cells that have the factor `options.x` and all levels in `options.at`."""
    import pandas as pd

    cells = frame.select_combinations(study)
    cells = cells.assign(coords=pd.Series(complete_coordinates(frame, cells), index=cells.index))
    held = {(name, labels.format_level(value)) for name, value in options.at.items()}
    levels = [{*_list_level_names(coords)} for coords in cells["coords"]]  # {(factor, level)}
    return cells[[options.x in dict(pairs) and held <= pairs for pairs in levels]]


def collect_lines(
    cells: DataFrame, options: FactorCurvesOptions, metric: str, prefix: str = ""
) -> list[Line]:
    """Return a line over `options.x` for each combination of the other coordinates' levels.

    If some combination has several levels of x, combinations with a single level are left out: in
    a one-factor study, they are cells that vary another factor.
    """
    x = [_to_axis_value(coords[options.x]) for coords in cells["coords"]]
    names = [_list_level_names(coords) for coords in cells["coords"]]
    others = [tuple(item for item in levels if item[0] != options.x) for levels in names]
    cells = cells.assign(x=x)
    groups = {key: cells[[other == key for other in others]] for key in dict.fromkeys(others)}
    if any(rows["x"].nunique() > 1 for rows in groups.values()):
        groups = {key: rows for key, rows in groups.items() if rows["x"].nunique() > 1}
    # coordinates in which two lines differ, for the legend
    varied = {name for a in groups for b in groups for name, _ in {*a} ^ {*b}}  # ^: in one alone
    lines = []
    for key, rows in groups.items():
        levels = ", ".join(f"{labels.format_coordinate(k)} = {v}" for k, v in key if k in varied)
        lines.append(_build_line(rows, metric, ": ".join(filter(None, [prefix, levels]))))
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


Mean = tuple[float, float, float, int]  # mean, ends of its 95 % t interval (NaN for one seed), n


class InteractionOptions(FigureOptions):
    """Options of `interactions`.

    among: factors whose pairs are drawn; default: all that vary.
    top: number of pairs, those with the largest interaction.
    """

    shown_as = "effects"
    among: tuple[str, ...] = ()
    top: int = Field(6, ge=1, le=12)

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"among": self.among}


@dataclass(frozen=True)
class Pair:
    """Two factors, `x` and `line`, with the means at their levels and their interaction.

    means: (level of x, level of line) → Mean, in the displayed unit.
    effect: None where the design does not determine it.
    """

    x: str
    line: str
    means: dict[tuple[str, str], Mean]
    effect: Effect | None


def list_factor_pairs(factorial: StudyFactorial, among: Sequence[str], metric: str) -> list[Pair]:
    """Return all pairs of the factors in `among` (empty: of all), largest interaction first."""
    data, levels, fit = factorial.data, factorial.levels, factorial.fit
    varied = [name for name, factor_levels in levels.items() if len(factor_levels) > 1]
    names = [name for name in dict.fromkeys(among or varied) if name in varied]
    effects = {frozenset(e.term): e for e in fit.effects} if fit else {}
    pairs = []
    for a, b in combinations(names, 2):
        # the factor with more levels is the axis, the other has a line for each level
        x, line = (a, b) if len(levels[a]) >= len(levels[b]) else (b, a)
        means = {}
        for x_level, line_level in product(levels[x], levels[line]):
            mean = _compute_mean(data, {x: x_level, line: line_level}, metric)
            if mean is not None:
                means[x_level, line_level] = mean
        pairs.append(Pair(x, line, means, effects.get(frozenset((a, b)))))
    return sorted(pairs, key=lambda pair: -pair.effect.spread if pair.effect else 1.0)  # 1.0: last


def _compute_mean(data: Cells, levels: dict[str, str], metric: str) -> Mean | None:
    """Return mean, interval and n over the seeds of the cells at `levels`; None without a result.

    A seed's value is the mean over these cells. A seed that has a result in fewer cells than some
    other seed is left out.
    """
    by_seed: dict[int, list[float]] = {}
    for coords, values in data:
        if all(coords.get(name, "") == level for name, level in levels.items()):
            for seed, value in values.items():
                by_seed.setdefault(seed, []).append(value * display_scale(metric))
    most = max(map(len, by_seed.values()), default=0)
    means = [float(np.mean(values)) for values in by_seed.values() if len(values) == most]
    if (summary := summarize(means)) is None:
        return None
    low, high = t_interval(means) or (np.nan, np.nan)
    return summary.mean, low, high, summary.n


@plot.figure(InteractionOptions)
def interactions(frame: Frame, recipe: Figure, options: InteractionOptions) -> plot.DrawnFigure:
    """Draw a panel per pair of factors: one as the x axis, a line per level of the other factor.

    Lines that are not parallel show an interaction.
    """
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.select_combinations(study)
    factorial = fit_study(frame, cells, metric)
    pairs = list_factor_pairs(factorial, options.among, metric)
    drawn_pairs = pairs[: options.top]
    title = labels.replace_greek_names(recipe.title) or f"{study}: interactions"
    size = (plot.WIDTH, 0.45, 2.1)
    drawing, panels = plot.create_panel_grid(len(drawn_pairs), 2, title, size, sharey=True)
    spots: list[plot.Tooltip] = []
    for panel, pair in zip(panels, drawn_pairs, strict=True):
        spots += _draw_pair_panel(panel, pair, factorial.levels, metric)
    drawing.supylabel(format_metric_label(metric), fontsize=plot.TEXT)
    counts = [n for pair in drawn_pairs for *_, n in pair.means.values()]
    units = plot.name_units([cells])
    bars = f"; bars: 95 % t intervals over {units}" if max(counts, default=0) > 1 else ""
    caption = (
        f"{format_metric_label(metric)}, {find_protocol(frame)}: mean over the other "
        f"factors and {plot.format_counts(counts, units)}{bars}. Parallel lines: no interaction. "
        "The size of the interaction is in the panel's title, as in the table of effects."
    )
    if len(pairs) > len(drawn_pairs):
        caption += f" The {len(drawn_pairs)} of {len(pairs)} pairs that interact most."
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def _draw_pair_panel(
    panel: plot.Axes, pair: Pair, levels: Levels, metric: str
) -> list[plot.Tooltip]:
    """Draw the means at two factors' levels as lines in a panel, and return their tooltips."""
    x_name, line_name = map(labels.format_coordinate, (pair.x, pair.line))
    x_levels = levels[pair.x]
    panel.set_title(f"{x_name} × {line_name}{_format_effect(pair.effect, metric)}")
    panel.set(xlabel=x_name, xlim=(-0.3, len(x_levels) - 0.7))
    panel.set_xticks(range(len(x_levels)), x_levels)
    panel.locator_params(axis="y", nbins=4)
    panel.grid()
    if not pair.means:
        plot.draw_empty_message(panel)
        return []
    spots = []
    for i, line_level in enumerate(levels[pair.line]):
        points = {
            j: pair.means[x_level, line_level]
            for j, x_level in enumerate(x_levels)
            if (x_level, line_level) in pair.means
        }
        if not points:
            continue
        means, low, high, _ = np.array(list(points.values())).T
        bars = np.abs([low - means, high - means])  # NaN: no bar
        style: dict[str, Any] = {**plot.select_line_style(i), "marker": "o", "linewidth": 1.6}
        panel.errorbar([*points], means, bars, elinewidth=1, label=line_level, **style)
        for j, mean in zip(points, means, strict=True):
            settings = f"{x_name} = {x_levels[j]}, {line_name} = {line_level}"
            text = f"{settings}: {labels.format_number(mean, 2)}"
            spots.append(plot.Tooltip(panel, j, mean, text))
    panel.legend(title=line_name, loc="upper left", bbox_to_anchor=(1.0, 1.05), borderaxespad=0.2)
    return spots


def _format_effect(effect: Effect | None, metric: str) -> str:
    """Write the size of an interaction on a new line; empty if the design does not determine it."""
    if effect is None:
        return ""
    if effect.estimate is not None:  # both factors have two levels
        interval = effect.estimate, effect.low, effect.high
        return f"\neffect {labels.format_with_interval(*interval, metric, 2)}"
    unit = " points" if is_share(metric) else ""
    spread = labels.format_number(effect.spread * display_scale(metric), 2)
    return f"\nrange {spread}{unit}"


class ShapleyOptions(FigureOptions):
    """Options of `shapley`, bars of the attribution in a table of effects."""

    shown_as = "effects"


@plot.figure(ShapleyOptions)
def shapley(frame: Frame, recipe: Figure, _: ShapleyOptions) -> plot.DrawnFigure:
    """Draw one bar per component: its Shapley value and interval, as in a table of effects."""
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.select_combinations(study)
    factorial = fit_study(frame, cells, metric)
    attribution = attribute_with_error(factorial) if factorial.is_full else None
    title = labels.replace_greek_names(recipe.title) or f"{study}: what each component gains"
    shares, factor = attribution.values if attribution else {}, display_scale(metric)
    ranked = sorted(shares, key=lambda name: -shares[name])
    drawing, panel = plot.create_single_panel(title, 0.95 + 0.3 * max(len(shares), 2))
    panel.set_xlabel(f"Shapley value, {format_difference_label(metric)}")
    spots = []
    if attribution is None:
        plot.draw_empty_message(panel, "no seed has every cell")
    else:
        values = [shares[name] * factor for name in ranked]
        panel.barh(range(len(ranked)), values, height=0.6, color=plot.COLOURS[5])
        panel.set_yticks(range(len(ranked)), labels.format_coordinates(ranked))
        panel.invert_yaxis()
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x")
        for i, (name, value) in enumerate(zip(ranked, values, strict=True)):
            low, high = attribution.intervals[name]
            if low is not None and high is not None:
                bars = [[value - low * factor], [high * factor - value]]
                panel.errorbar(value, i, xerr=bars, color="black")
            text = labels.format_with_interval(shares[name], low, high, metric, 2)
            spots.append(plot.Tooltip(panel, value, i, f"{name}: {text}"))
        panel.axvline(0, color="black", linewidth=0.8)
    note = explain_attribution(attribution, factorial.levels, metric, 2)
    caption = f"{find_protocol(frame).capitalize()}. {note}"
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)
