"""Interaction plots: the effect of one factor at each level of another.

Parallel lines mean that the two do not interact. The effect above a panel is that of the table of
effects (`reports/stats/factorial.py`; Montgomery, "Design and Analysis of Experiments", ch. 5).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.describe import summarize, t_interval
from reports.stats.factorial import Effect
from reports.tables import labels
from reports.tables.cells import Cells, Levels, find_protocol
from reports.tables.effects import StudyFactorial, fit_study
from trainables.words.metrics import display_scale, format_metric_label, is_share

Mean = tuple[float, float, float, int]  # mean, ends of its 95 % t interval (NaN for one seed), n


class InteractionOptions(plot.FigureOptions):
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
