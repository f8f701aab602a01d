"""Parallel coordinates of a search: a line a trial through its parameters to what it gave."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reports.figures.axes import AxesOptions, Axis, axes_of
from reports.figures.drawn import (
    COLOURS,
    MANY,
    Axes,
    Canvas,
    Drawn,
    Spot,
    empty,
    figure,
    finish,
    seeds_text,
    shades,
    single,
)
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.cells import Trial, Trials, protocol, trials_of
from reports.tables.labels import (
    greek,
    level,
    lower_is_better,
    metric_label,
    metric_name,
    number,
    scale,
    ticks,
)

LEFT_OUT = -0.12  # where a line passes a conditional parameter that its trial does not have


@figure(AxesOptions)
def parallel(frame: Frame, recipe: Figure, options: AxesOptions) -> Drawn:
    """Draw an axis a parameter, from the low end of its range to the high one, the last the metric.

    Raises:
        ReportError: the study is no search, or lacks a parameter.
    """
    study, metric = recipe.studies[0], recipe.metric
    axes, cells = axes_of(frame, recipe, options), frame.study(study)
    trials = trials_of(cells, metric)
    title = greek(recipe.title) or f"{study}: parallel coordinates"
    drawing, spots = _draw(trials, axes, metric, title)
    caption = (
        f"A line a trial: {len(trials.trials)} trials, "
        f"{seeds_text([each.result.n for each in trials.trials])} each, through their parameters "
        f"to {metric_label(metric)}, {protocol(frame)}; brighter: better; thick: the best. "
        "Axes span the ranges that were searched."
    )
    if any(axis.path not in trial.coords for trial in trials.trials for axis in axes):
        caption += " Below an axis: a trial without that parameter."
    return finish(
        recipe,
        cells,
        drawing,
        spots,
        title=title,
        caption=caption,
        key=f"parallel_{study}_{metric}",
    )


def heights(trial: Trial, axes: list[Axis], ends: tuple[float, float]) -> list[float]:
    """Return where a trial's line stands on each axis and on the metric's, in shares of them."""
    low, high = ends
    own = [
        axis.share(trial.coords[axis.path]) if axis.path in trial.coords else LEFT_OUT
        for axis in axes
    ]
    return [*own, (trial.result.mean - low) / (high - low) if high > low else 0.5]


def _draw(trials: Trials, axes: list[Axis], metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    from matplotlib.collections import LineCollection

    drawing, panel = single(title)
    panel.title.set_position((0, 1.12))
    means = [trial.result.mean for trial in trials.trials]
    ends = (min(means, default=0.0), max(means, default=1.0))
    sign, factor = -1 if lower_is_better(metric) else 1, scale(metric)
    ranked = sorted(trials.trials, key=lambda trial: sign * trial.result.mean)  # the best on top
    places = {trial.number: heights(trial, axes, ends) for trial in ranked}
    columns = np.arange(len(axes) + 1)
    if ranked:
        lines = LineCollection(
            [np.column_stack([columns, places[trial.number]]) for trial in ranked],
            cmap=shades("cividis", 0.25, 1),  # without what a dark page would swallow
            linewidths=1.1,
            alpha=0.85,
            rasterized=len(ranked) > MANY,
        )
        lines.set_array(np.array([sign * trial.result.mean for trial in ranked]))
        panel.add_collection(lines)
    else:
        empty(panel)
    best = trials.best(metric)
    if best is not None:
        panel.plot(columns, places[best.number], color=COLOURS[1], linewidth=2.4)
    _draw_axes(panel, axes, metric, ends)
    return drawing, [
        Spot(panel, len(axes), places[each.number][-1], _describe(each, axes, factor))
        for each in ranked
    ]


def _describe(trial: Trial, axes: list[Axis], factor: float) -> str:
    values = (f"{a.name} = {level(trial.coords[a.path])}" for a in axes if a.path in trial.coords)
    return f"trial {trial.cell}: {number(trial.result.mean * factor, 2)} at {', '.join(values)}"


def _draw_axes(panel: Axes, axes: list[Axis], metric: str, ends: tuple[float, float]) -> None:
    """Draw each axis: a line, its ends or choices as words, its name below."""
    panel.set_xlim(-0.4, len(axes) + 0.4)
    panel.set_ylim(-0.14, 1.1)
    for spine in panel.spines.values():
        spine.set_visible(False)
    panel.set_yticks([])
    names = [axis.name.replace(".", ".\n") for axis in axes]
    panel.set_xticks(range(len(axes) + 1), [*names, metric_name(metric)])
    panel.tick_params(length=0)
    for at in range(len(axes) + 1):
        panel.plot([at, at], [0, 1], color="black", linewidth=0.8)
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    labels = [ticks([axis.low, axis.high]) for axis in axes if not axis.choices]
    places = [at for at, axis in enumerate(axes) if not axis.choices]
    if all(map(math.isfinite, ends)):
        labels.append([number(end * scale(metric), 2) for end in ends])
        places.append(len(axes))
    for at, (low, high) in zip(places, labels, strict=True):
        panel.text(at, -0.03, low, ha="center", va="top", bbox=box)
        panel.text(at, 1.03, high, ha="center", va="bottom")
    for at, axis in enumerate(axes):
        for choice in axis.choices:
            panel.text(at, axis.share(choice), choice, ha="center", va="center", bbox=box)
