"""Parallel coordinates of a search: a line a trial through its parameters to what it gave."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes as Panel
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import (
    COLOURS,
    HEIGHT,
    MANY,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    said,
    seeds_text,
    style,
)
from reports.figures.searches.axes import Axis, axes_of
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.cells import gaps, protocol, run_ids
from reports.tables.factors.trials import Trial, Trials, trials_of
from reports.tables.labels import (
    greek,
    level,
    lower_is_better,
    metric_label,
    metric_name,
    number,
    scale,
    slug,
    ticks,
)

# Without the darkest quarter, which a dark page would swallow.
SHADES = ListedColormap(mpl.colormaps["cividis"](np.linspace(0.25, 1, 256)))
LEFT_OUT = -0.12  # where a line passes a conditional parameter that its trial does not have


def parallel(frame: Frame, recipe: Figure) -> Drawn:
    """An axis a parameter, from the low end of its range to the high one, the last one the metric.

    Raises:
        ReportError: the study is no search, or lacks a parameter.
    """
    study = recipe.studies[0]
    axes, cells = axes_of(frame, recipe), frame.study(study)
    told = trials_of(cells, recipe.metric)
    title = greek(recipe.title) or f"{study}: parallel coordinates"
    with style():
        figure, spots = _figure(told, axes, recipe.metric, title)
    caption = (
        f"A line a trial: {len(told.trials)} trials, "
        f"{seeds_text([each.result.n for each in told.trials])} each, through their parameters to "
        f"{metric_label(recipe.metric)}, {protocol(frame)}; brighter: better; thick: the best. "
        "Axes span the ranges that were searched."
    )
    if any(axis.path not in trial.coords for trial in told.trials for axis in axes):
        caption += " Below an axis: a trial without that parameter."
    key = slug(f"parallel_{study}_{recipe.metric}")
    caption = said(recipe.caption, caption)
    return Drawn(key, study, title, caption, figure, run_ids(cells), gaps(cells), tuple(spots))


def heights(trial: Trial, axes: list[Axis], ends: tuple[float, float]) -> list[float]:
    """Where a trial's line stands on each axis and on the metric's, in shares of their length."""
    low, high = ends
    own = [
        axis.share(trial.coords[axis.path]) if axis.path in trial.coords else LEFT_OUT
        for axis in axes
    ]
    return [*own, (trial.result.mean - low) / (high - low) if high > low else 0.5]


def _figure(told: Trials, axes: list[Axis], metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    figure = Canvas(figsize=(WIDTH, HEIGHT), layout="constrained")
    panel = figure.add_subplot()
    means = [trial.result.mean for trial in told.trials]
    ends = (min(means, default=0.0), max(means, default=1.0))
    sign = -1 if lower_is_better(metric) else 1
    ranked = sorted(told.trials, key=lambda trial: sign * trial.result.mean)  # the best on top
    places = {trial.number: heights(trial, axes, ends) for trial in ranked}
    columns = np.arange(len(axes) + 1)
    if ranked:
        lines = LineCollection(
            [np.column_stack([columns, places[trial.number]]) for trial in ranked],
            cmap=SHADES,
            linewidths=1.1,
            alpha=0.85,
            rasterized=len(ranked) > MANY,
        )
        lines.set_array(np.array([sign * trial.result.mean for trial in ranked]))
        panel.add_collection(lines)
    else:
        empty(panel)
    best = told.best(metric)
    if best is not None:
        panel.plot(columns, places[best.number], color=COLOURS[1], linewidth=2.4)
    _ruled(panel, axes, metric, ends)
    heading(panel, title)
    panel.title.set_position((0, 1.12))
    factor = scale(metric)
    return figure, [
        Spot(panel, len(axes), places[each.number][-1], _words(each, axes, factor))
        for each in ranked
    ]


def _words(trial: Trial, axes: list[Axis], factor: float) -> str:
    values = (f"{a.name} = {level(trial.coords[a.path])}" for a in axes if a.path in trial.coords)
    return f"trial {trial.cell}: {number(trial.result.mean * factor, 2)} at {', '.join(values)}"


def _ruled(panel: Panel, axes: list[Axis], metric: str, ends: tuple[float, float]) -> None:
    """The axes themselves: a line, the ends or the choices as words, the name below."""
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
    for at, axis in enumerate(axes):
        if axis.choices:
            marks = [(axis.share(c), c) for c in axis.choices]
            for share, words in marks:
                panel.text(at, share, words, ha="center", va="center", bbox=box)
        else:
            low, high = ticks([axis.low, axis.high])
            panel.text(at, -0.03, low, ha="center", va="top", bbox=box)
            panel.text(at, 1.03, high, ha="center", va="bottom")
    if all(map(math.isfinite, ends)):
        low, high = (number(end * scale(metric), 2) for end in ends)
        panel.text(len(axes), -0.03, low, ha="center", va="top", bbox=box)
        panel.text(len(axes), 1.03, high, ha="center", va="bottom")
