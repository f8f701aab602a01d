"""Interaction plots: what one factor does at each level of another.

Parallel lines: the two do not interact. The effect above a panel is the one of the table of
effects (`reports/stats/factorial.py`; Montgomery, "Design and Analysis of Experiments", ch. 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from pydantic import Field, field_validator

from reports.errors import ReportError
from reports.figures.drawn import (
    COLOURS,
    DASHES,
    TEXT,
    WIDTH,
    Axes,
    Canvas,
    Drawn,
    FigureOptions,
    Spot,
    empty,
    few_ticks,
    figure,
    finish,
    lined,
    panel_grid,
    seeds_text,
)
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.describe import summary, t_interval
from reports.stats.factorial import Effect, factorial
from reports.tables.cells import Cells, Levels, cells_of, levels_of, protocol
from reports.tables.labels import (
    coordinate_name,
    greek,
    is_share,
    metric_label,
    number,
    scale,
    with_interval,
)

ACROSS = 2  # panels
MOST_PAIRS = 12  # of factors in one picture


class InteractionOptions(FigureOptions):
    """Of `interactions`. among: pairs among these alone; default: all that vary. top: so many
    pairs, those that interact most."""

    shown_as = "effects"
    among: tuple[str, ...] = ()
    top: int = Field(6, ge=1, le=MOST_PAIRS)

    @field_validator("among", mode="after")
    @classmethod
    def pairs(cls, among: tuple[str, ...]) -> tuple[str, ...]:
        if among and len(set(among)) < max(2, len(among)):
            raise ValueError(f"two or more factors, each once, not {', '.join(among)}")
        return among

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"among": self.among}


@dataclass(frozen=True)
class Mean:
    """Over the other factors and the seeds: the mean, and its 95 % t interval over n seeds; no
    interval for one."""

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


def pairs_of(data: Cells, levels: Levels, among: Sequence[str], metric: str) -> list[Pair]:
    """Return every pair of factors that vary, those that interact most first.

    A seed's mean at two levels is over the cells there that have it, and a seed counts where it has
    as many of them as any.
    """
    varied = [name for name, mine in levels.items() if len(mine) > 1]
    names = [name for name in among or varied if name in varied]
    fit = factorial(data, order=2, levels=levels)
    effects = {frozenset(e.term): e for e in fit.effects} if fit else {}
    pairs = []
    for a, b in combinations(names, 2):
        x, line = (a, b) if len(levels[a]) >= len(levels[b]) else (b, a)
        means = {
            (at, other): mean
            for at in levels[x]
            for other in levels[line]
            if (mean := _mean(data, {x: at, line: other}, scale(metric))) is not None
        }
        pairs.append(Pair(x, line, means, effects.get(frozenset((a, b)))))
    return sorted(pairs, key=lambda pair: -pair.effect.spread if pair.effect else 1.0)


def _mean(data: Cells, at: dict[str, str], factor: float) -> Mean | None:
    by_seed: dict[int, list[float]] = {}
    for coords, values in data:
        if all(coords.get(name, "") == level for name, level in at.items()):
            for seed, value in values.items():
                by_seed.setdefault(seed, []).append(value * factor)
    most = max(map(len, by_seed.values()), default=0)
    means = [float(np.mean(values)) for values in by_seed.values() if len(values) == most]
    if (mean := summary(means)) is None:
        return None
    low, high = t_interval(means) or (None, None)
    return Mean(mean.mean, low, high, mean.n)


@figure(InteractionOptions)
def interactions(frame: Frame, recipe: Figure, options: InteractionOptions) -> Drawn:
    """Draw a panel a pair of factors: a line for each level of one, over the levels of the other.

    Raises:
        ReportError: fewer than two of the factors vary in the study.
    """
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.study(study)
    levels, data = levels_of(frame, cells), cells_of(frame, cells, metric)
    pairs = pairs_of(data, levels, options.among, metric)
    if not pairs:
        raise ReportError(
            f"report.figures: fewer than two factors vary in {study}; interactions are of two or "
            "more"
        )
    shown = pairs[: options.top]
    title = greek(recipe.title) or f"{study}: interactions"
    drawing, spots = _draw(shown, levels, metric, title)
    counts = [mean.n for pair in shown for mean in pair.means.values()]
    bars = "; bars: 95 % t intervals over seeds" if max(counts, default=0) > 1 else ""
    caption = (
        f"{metric_label(metric)}, {protocol(frame)}: mean over the other factors and "
        f"{seeds_text(counts)}{bars}. Parallel lines: no interaction; its size stands above, as in "
        "the table of effects."
    )
    if len(pairs) > len(shown):
        caption += f" The {len(shown)} of {len(pairs)} pairs that interact most."
    key = f"interactions_{study}_{metric}"
    return finish(recipe, cells, drawing, spots, title=title, caption=caption, key=key)


def _draw(pairs: list[Pair], levels: Levels, metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    drawing, panels = panel_grid(len(pairs), ACROSS, title, (WIDTH, 0.45, 2.1), sharey=True)
    spots: list[Spot] = []
    for panel, pair in zip(panels, pairs, strict=True):
        spots += _panel(panel, pair, levels, metric)
    drawing.supylabel(metric_label(metric), fontsize=TEXT)
    return drawing, spots


def _panel(panel: Axes, pair: Pair, levels: Levels, metric: str) -> list[Spot]:
    names = coordinate_name(pair.x), coordinate_name(pair.line)
    panel.set_title(f"{names[0]} × {names[1]}{_size(pair, metric)}", loc="left")
    panel.set_xticks(range(len(levels[pair.x])), levels[pair.x])
    panel.set_xlim(-0.3, len(levels[pair.x]) - 0.7)
    panel.set_xlabel(names[0])
    few_ticks(panel.yaxis, 4)
    lined(panel)
    if not pair.means:
        empty(panel)
        return []
    spots = []
    for i, other in enumerate(levels[pair.line]):
        here = [(j, pair.means.get((at, other))) for j, at in enumerate(levels[pair.x])]
        known = [(j, mean) for j, mean in here if mean is not None]
        ends = [
            [0.0 if mean.low is None else mean.mean - mean.low for _, mean in known],
            [0.0 if mean.high is None else mean.high - mean.mean for _, mean in known],
        ]
        panel.errorbar(
            [j for j, _ in known],
            [mean.mean for _, mean in known],
            yerr=ends if any(map(any, ends)) else None,
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            marker="o",
            markersize=4,
            linewidth=1.6,
            elinewidth=1,
            capsize=3,
            label=other,
        )
        for j, mean in known:
            words = f"{names[0]} = {levels[pair.x][j]}, {names[1]} = {other}"
            spots.append(Spot(panel, j, mean.mean, f"{words}: {number(mean.mean, 2)}"))
    panel.legend(title=names[1], loc="upper left", bbox_to_anchor=(1.0, 1.05), borderaxespad=0.2)
    return spots


def _size(pair: Pair, metric: str) -> str:
    """Return what the table of effects says of the pair, on a line of its own."""
    effect = pair.effect
    if effect is None:
        return ""
    if effect.estimate is not None:
        return f"\neffect {with_interval(effect.estimate, effect.low, effect.high, metric, 2)}"
    unit = " points" if is_share(metric) else ""
    return f"\nrange {number(effect.spread * scale(metric), 2)}{unit}"
