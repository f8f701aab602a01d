"""Optimisation history: what each trial of a search gave, and the best so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures.drawn import (
    COLOURS,
    HEIGHT,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    lined,
    seeds_text,
    style,
)
from reports.frame import Frame
from reports.recipe import Table
from reports.stats.describe import Summary
from reports.tables.cells import gaps, protocol, run_ids
from reports.tables.factors.trials import trials_of
from reports.tables.labels import lower_is_better, metric_label, number, scale, slug


@dataclass(frozen=True)
class History:
    """The trials in the order in which they were proposed, from 1.

    results: {number: mean over seeds, sd, n} of those that finished; best: the best mean up to and
    with each of them; lost: numbers of trials without a result. neutral: the method switched off,
    which is no draw from the space and has no place in the order; None where there is none.
    """

    results: dict[int, Summary]
    best: tuple[float, ...]
    lost: tuple[int, ...]
    neutral: Summary | None


def history_of(cells: pd.DataFrame, metric: str) -> History:
    """Of the cells of one search, on the scale of the runs."""
    told = trials_of(cells, metric)
    results = {trial.number: trial.result for trial in told.trials}
    best = np.minimum if lower_is_better(metric) else np.maximum
    means = [result.mean for result in results.values()]
    so_far = tuple(map(float, best.accumulate(means))) if means else ()
    return History(results, so_far, told.lost, told.neutral)


def history(frame: Frame, recipe: Table) -> Drawn:
    """One dot a trial (mean over seeds, ± one sd where there are several), the best so far as a
    line, trials without a result as crosses on the axis.

    Raises:
        ReportError: unknown study.
    """
    cells, metric = frame.study(recipe.study), recipe.metrics[0]
    told = history_of(cells, metric)
    title = f"{recipe.title or recipe.study}: history"
    with style():
        figure = _figure(told, metric, title)
    counts = [result.n for result in told.results.values()]
    spread = " ± one sd" if max(counts, default=0) > 1 else ""
    caption = (
        f"{metric_label(metric)}, {protocol(frame)}, of {len(told.results)} trials in the order of "
        f"their proposal{spread}, {seeds_text(counts)} each; line: the best so far."
    )
    if told.lost:
        caption += f" Crosses: {len(told.lost)} without a result."
    if told.neutral is not None:
        caption += " Dashed: neutral, the method switched off."
    factor = scale(metric)
    spots = tuple(
        Spot(
            figure.axes[0],
            at,
            result.mean * factor,
            f"trial {at}: {number(result.mean * factor, recipe.digits)}"
            + (f" ± {number(result.sd * factor, recipe.digits)}" if result.sd is not None else ""),
        )
        for at, result in told.results.items()
    )
    return Drawn(
        slug(f"history_{recipe.study}_{metric}"),
        recipe.study,
        title,
        caption,
        figure,
        run_ids(cells),
        gaps(cells),
        spots,
    )


def _figure(told: History, metric: str, title: str) -> Figure:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes, factor = figure.add_subplot(), scale(metric)
    numbers = list(told.results)
    means = [result.mean * factor for result in told.results.values()]
    sds = [(result.sd or 0.0) * factor for result in told.results.values()]
    if numbers:
        bars = sds if any(sds) else None
        axes.errorbar(
            numbers, means, yerr=bars, fmt="o", color=COLOURS[5], markersize=4.5, elinewidth=1
        )
        best = [value * factor for value in told.best]
        axes.step(numbers, best, where="post", color=COLOURS[0], linewidth=1.8, label="best so far")
        if told.neutral is not None:
            axes.axhline(
                told.neutral.mean * factor,
                color=COLOURS[1],
                linestyle="--",
                linewidth=1.4,
                label="neutral",
            )
        axes.legend(loc="best")
    else:
        empty(axes)
    if told.lost:
        axes.plot(
            told.lost,
            [0.0] * len(told.lost),
            "x",
            color="#a40e26",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial")
    axes.set_ylabel(metric_label(metric))
    lined(axes)
    heading(axes, title)
    return figure
