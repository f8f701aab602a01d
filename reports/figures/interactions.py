"""Interaction plots: the effect of one factor at each level of another.

Parallel lines mean that the two do not interact. The effect above a panel is that of the table of
effects (`reports/stats/factorial.py`; Montgomery, "Design and Analysis of Experiments", ch. 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from pydantic import Field, field_validator

import reports.figures.figure as plot
from reports.errors import ReportError
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.describe import summarize, t_interval
from reports.stats.factorial import Effect, fit_factorial
from reports.tables import labels
from reports.tables.cells import Cells, Levels, collect_factor_cells, collect_levels, find_protocol

ACROSS = 2  # panels
MOST_PAIRS = 12  # of factors in one picture


class InteractionOptions(plot.FigureOptions):
    """Options of `interactions`.

    among: factors whose pairs are drawn; default: all that vary.
    top: number of pairs, those with the largest interaction.
    """

    shown_as = "effects"
    among: tuple[str, ...] = ()
    top: int = Field(6, ge=1, le=MOST_PAIRS)

    @field_validator("among", mode="after")
    @classmethod
    def check_factor_pairs(cls, among: tuple[str, ...]) -> tuple[str, ...]:
        if among and len(set(among)) < max(2, len(among)):
            raise ValueError(f"two or more factors, each once, not {', '.join(among)}")
        return among

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"among": self.among}


@dataclass(frozen=True)
class Mean:
    """Mean over the other factors and the seeds, with its 95 % t interval; None for one seed."""

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Pair:
    """x, line: the two factors. means: (level of x, level of line) → Mean, in the unit shown.
    effect: their interaction; None where the design does not tell it."""

    x: str
    line: str
    means: dict[tuple[str, str], Mean]
    effect: Effect | None


def list_factor_pairs(data: Cells, levels: Levels, among: Sequence[str], metric: str) -> list[Pair]:
    """Return every pair of factors that vary, the largest interaction first.

    The mean of a seed at two levels is over the cells there that have the seed. A seed counts if it
    has as many of them as any other.
    """
    varied = [name for name, factor_levels in levels.items() if len(factor_levels) > 1]
    names = [name for name in among or varied if name in varied]
    fit = fit_factorial(data, order=2, levels=levels)
    effects = {frozenset(e.term): e for e in fit.effects} if fit else {}
    pairs = []
    for a, b in combinations(names, 2):
        x, line = (a, b) if len(levels[a]) >= len(levels[b]) else (b, a)
        means = {
            at: mean
            for at in product(levels[x], levels[line])
            if (mean := _mean_at_level(data, dict(zip((x, line), at, strict=True)), metric))
            is not None
        }
        pairs.append(Pair(x, line, means, effects.get(frozenset((a, b)))))
    return sorted(pairs, key=lambda pair: -pair.effect.spread if pair.effect else 1.0)


def _mean_at_level(data: Cells, at: dict[str, str], metric: str) -> Mean | None:
    by_seed: dict[int, list[float]] = {}
    for coords, values in data:
        if all(coords.get(name, "") == level for name, level in at.items()):
            for seed, value in values.items():
                by_seed.setdefault(seed, []).append(value * labels.display_scale(metric))
    most = max(map(len, by_seed.values()), default=0)
    means = [float(np.mean(values)) for values in by_seed.values() if len(values) == most]
    if (mean := summarize(means)) is None:
        return None
    low, high = t_interval(means) or (None, None)
    return Mean(mean.mean, low, high, mean.n)


@plot.figure(InteractionOptions)
def interactions(frame: Frame, recipe: Figure, options: InteractionOptions) -> plot.DrawnFigure:
    """Draw one panel per pair of factors: a line per level of one, over the levels of the other.

    Raises:
        ReportError: fewer than two of the factors vary in the study.

    Example:
        >>> Figure(kind="interactions", studies=("terms",), options={"top": 4}).metric
        'val/map_at_r'
    """
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.select_study(study)
    levels, data = collect_levels(frame, cells), collect_factor_cells(frame, cells, metric)
    pairs = list_factor_pairs(data, levels, options.among, metric)
    if not pairs:
        raise ReportError(
            f"report.figures: fewer than two factors vary in {study}, but an interaction "
            "needs two. Name another study."
        )
    drawn_pairs = pairs[: options.top]
    title = labels.replace_greek_names(recipe.title) or f"{study}: interactions"
    size = (plot.WIDTH, 0.45, 2.1)
    drawing, panels = plot.create_panel_grid(len(drawn_pairs), ACROSS, title, size, sharey=True)
    spots: list[plot.Tooltip] = []
    for panel, pair in zip(panels, drawn_pairs, strict=True):
        spots += _draw_pair_panel(panel, pair, levels, metric)
    drawing.supylabel(labels.format_metric_label(metric), fontsize=plot.TEXT)
    counts = [mean.n for pair in drawn_pairs for mean in pair.means.values()]
    bars = "; bars: 95 % t intervals over seeds" if max(counts, default=0) > 1 else ""
    caption = (
        f"{labels.format_metric_label(metric)}, {find_protocol(frame)}: mean over the other "
        f"factors and {plot.format_seed_counts(counts)}{bars}. Parallel lines: no interaction; its "
        "size stands above, as in the table of effects."
    )
    if len(pairs) > len(drawn_pairs):
        caption += f" The {len(drawn_pairs)} of {len(pairs)} pairs that interact most."
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def _draw_pair_panel(
    panel: plot.Axes, pair: Pair, levels: Levels, metric: str
) -> list[plot.Tooltip]:
    """Draw the lines of two factors, with their effect from the table of effects above."""
    x_name, line_name = map(labels.format_coordinate, (pair.x, pair.line))
    size, effect, x_levels = "", pair.effect, levels[pair.x]
    if effect is not None and effect.estimate is not None:
        size = labels.format_with_interval(effect.estimate, effect.low, effect.high, metric, 2)
        size = f"\neffect {size}"
    elif effect is not None:
        unit = " points" if labels.is_share(metric) else ""
        size = (
            f"\nrange {labels.format_number(effect.spread * labels.display_scale(metric), 2)}{unit}"
        )
    panel.set(
        title=f"{x_name} × {line_name}{size}", xlabel=x_name, xlim=(-0.3, len(x_levels) - 0.7)
    )
    panel.set_xticks(range(len(x_levels)), x_levels)
    panel.locator_params(axis="y", nbins=4)
    panel.grid()
    if not pair.means:
        plot.draw_empty_message(panel)
        return []
    spots = []
    for i, other in enumerate(levels[pair.line]):
        line = [
            (j, x, pair.means[x, other]) for j, x in enumerate(x_levels) if (x, other) in pair.means
        ]
        at, y = [j for j, _, _ in line], np.array([mean.mean for _, _, mean in line])
        ends = [[getattr(mean, end) for _, _, mean in line] for end in ("low", "high")]
        shape: dict[str, Any] = {**plot.select_line_style(i), "marker": "o", "linewidth": 1.6}
        bars = np.nan_to_num(np.abs(np.array(ends, dtype=float) - y))
        panel.errorbar(at, y, bars if bars.any() else None, elinewidth=1, label=other, **shape)
        for j, x, mean in line:
            words = f"{x_name} = {x}, {line_name} = {other}: {labels.format_number(mean.mean, 2)}"
            spots.append(plot.Tooltip(panel, j, mean.mean, words))
    panel.legend(title=line_name, loc="upper left", bbox_to_anchor=(1.0, 1.05), borderaxespad=0.2)
    return spots
