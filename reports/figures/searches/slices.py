"""Slices of a search: what each trial gave against each parameter.

Optuna draws the same (`plot_slice`), of which only the Plotly figure is public; there is nothing
computed in it but the trials themselves.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes as Panel
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from reports.figures.drawn import (
    COLOURS,
    MANY,
    WIDTH,
    Drawn,
    Spot,
    empty,
    heading,
    lined,
    log_ticks,
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
    metric_label,
    number,
    scale,
    slug,
)

ACROSS = 3  # panels
# Neither end is lost on a light page or on a dark one.
ORDER = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.3, 0.8, 256)))  # early to late


def slices(frame: Frame, recipe: Figure) -> Drawn:
    """A panel a parameter: the mean over seeds of each trial, darker the later it was proposed.

    A trial that has no value of a conditional parameter is not in its panel.

    Raises:
        ReportError: the study is no search, or lacks a parameter.
    """
    study = recipe.studies[0]
    axes, cells = axes_of(frame, recipe), frame.study(study)
    told = trials_of(cells, recipe.metric)
    title = greek(recipe.title) or f"{study}: each parameter"
    with style():
        figure, spots = _figure(told, axes, recipe.metric, title)
    caption = (
        f"{metric_label(recipe.metric)}, {protocol(frame)}, of {len(told.trials)} trials, "
        f"{seeds_text([each.result.n for each in told.trials])} each, against each parameter that "
        "was searched, over the whole range; darker: proposed later; star: the best."
    )
    if told.neutral is not None:
        caption += " Dashed: neutral, the method switched off."
    key = slug(f"slices_{study}_{recipe.metric}")
    caption = said(recipe.caption, caption)
    return Drawn(key, study, title, caption, figure, run_ids(cells), gaps(cells), tuple(spots))


def _figure(told: Trials, axes: list[Axis], metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    across = min(ACROSS, len(axes))
    down = -(-len(axes) // across)
    figure = Canvas(figsize=(WIDTH, 0.5 + 1.75 * down), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for panel in panels[len(axes) :]:
        panel.set_axis_off()
    best, spots = told.best(metric), []
    for panel, axis in zip(panels, axes, strict=False):
        spots += _panel(panel, told, axis, metric, best)
    figure.supylabel(metric_label(metric), fontsize=mpl.rcParams["font.size"])
    heading(figure, title)
    return figure, spots


def _panel(panel: Panel, told: Trials, axis: Axis, metric: str, best: Trial | None) -> list[Spot]:
    factor = scale(metric)
    here = [trial for trial in told.trials if axis.path in trial.coords]
    x = [axis.place(trial.coords[axis.path]) for trial in here]
    y = [trial.result.mean * factor for trial in here]
    panel.scatter(
        x,
        y,
        s=18,
        c=[trial.number for trial in here],
        cmap=ORDER,
        vmin=0,
        vmax=max((trial.number for trial in told.trials), default=1),
        rasterized=len(here) > MANY,
    )
    if not here:
        empty(panel)
    if best is not None and best in here:
        at = here.index(best)
        panel.plot(x[at], y[at], "*", color=COLOURS[1], markersize=10, markeredgecolor="white")
    if told.neutral is not None:
        panel.axhline(told.neutral.mean * factor, color=COLOURS[1], linestyle="--", linewidth=1.2)
    _scaled(panel, axis)
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.margins(y=0.12)
    lined(panel)
    return [
        Spot(
            panel,
            at,
            value,
            f"trial {trial.cell}: {number(value, 2)} at {axis.name} = "
            f"{level(trial.coords[axis.path])}",
        )
        for trial, at, value in zip(here, x, y, strict=True)
    ]


def _scaled(panel: Panel, axis: Axis) -> None:
    """The whole range that was searched, with a little beside it."""
    if axis.choices:
        panel.set_xlim(-0.5, len(axis.choices) - 0.5)
        panel.set_xticks(range(len(axis.choices)), axis.choices)
    elif axis.log:
        panel.set_xscale("log")
        beside = (axis.high / axis.low) ** 0.05
        panel.set_xlim(axis.low / beside, axis.high * beside)
        log_ticks(panel, axis.low, axis.high)
    else:
        beside = 0.05 * (axis.high - axis.low)
        panel.set_xlim(axis.low - beside, axis.high + beside)
        panel.xaxis.set_major_locator(MaxNLocator(4))
    panel.set_xlabel(axis.name)
