"""Slices of a search: what each trial gave against each parameter."""

from __future__ import annotations

from reports.figures.axes import AxesOptions, Axis, axes_of
from reports.figures.drawn import (
    COLOURS,
    MANY,
    TEXT,
    WIDTH,
    Axes,
    Canvas,
    Drawn,
    Spot,
    empty,
    few_ticks,
    figure,
    finish,
    lined,
    log_ticks,
    panel_grid,
    seeds_text,
    shades,
)
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.cells import Trial, Trials, protocol, trials_of
from reports.tables.labels import greek, level, metric_label, number, scale

ACROSS = 3  # panels


@figure(AxesOptions)
def slices(frame: Frame, recipe: Figure, options: AxesOptions) -> Drawn:
    """Draw a panel a parameter: each trial's mean over seeds, darker the later it was proposed.

    A trial that has no value of a conditional parameter is not in its panel.

    Raises:
        ReportError: the study is no search, or lacks a parameter.
    """
    study, metric = recipe.studies[0], recipe.metric
    axes, cells = axes_of(frame, recipe, options), frame.study(study)
    trials = trials_of(cells, metric)
    title = greek(recipe.title) or f"{study}: each parameter"
    drawing, spots = _draw(trials, axes, metric, title)
    caption = (
        f"{metric_label(metric)}, {protocol(frame)}, of {len(trials.trials)} trials, "
        f"{seeds_text([each.result.n for each in trials.trials])} each, against each parameter "
        "that was searched, over the whole range; darker: proposed later; star: the best."
    )
    if trials.neutral is not None:
        caption += " Dashed: neutral, the method switched off."
    return finish(
        recipe, cells, drawing, spots, title=title, caption=caption, key=f"slices_{study}_{metric}"
    )


def _draw(trials: Trials, axes: list[Axis], metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    drawing, panels = panel_grid(len(axes), ACROSS, title, (WIDTH, 0.5, 1.75), sharey=True)
    best, spots = trials.best(metric), []
    for panel, axis in zip(panels, axes, strict=True):
        spots += _panel(panel, trials, axis, metric, best)
    drawing.supylabel(metric_label(metric), fontsize=TEXT)
    return drawing, spots


def _panel(panel: Axes, trials: Trials, axis: Axis, metric: str, best: Trial | None) -> list[Spot]:
    factor = scale(metric)
    here = [trial for trial in trials.trials if axis.path in trial.coords]
    x = [axis.place(trial.coords[axis.path]) for trial in here]
    y = [trial.result.mean * factor for trial in here]
    panel.scatter(
        x,
        y,
        s=18,
        c=[trial.number for trial in here],
        cmap=shades("Blues", 0.3, 0.8),  # neither end is lost on a light page or on a dark one
        vmin=0,
        vmax=max((trial.number for trial in trials.trials), default=1),
        rasterized=len(here) > MANY,
    )
    if not here:
        empty(panel)
    if best is not None and best in here:
        at = here.index(best)
        panel.plot(x[at], y[at], "*", color=COLOURS[1], markersize=10, markeredgecolor="white")
    if trials.neutral is not None:
        panel.axhline(trials.neutral.mean * factor, color=COLOURS[1], linestyle="--", linewidth=1.2)
    _set_range(panel, axis)
    few_ticks(panel.yaxis, 4)
    panel.margins(y=0.12)
    lined(panel)
    words = [f"{axis.name} = {level(trial.coords[axis.path])}" for trial in here]
    return [
        Spot(panel, at, value, f"trial {trial.cell}: {number(value, 2)} at {where}")
        for trial, at, value, where in zip(here, x, y, words, strict=True)
    ]


def _set_range(panel: Axes, axis: Axis) -> None:
    """Show the whole range that was searched, with a little beside it."""
    if axis.choices:
        panel.set_xlim(-0.5, len(axis.choices) - 0.5)
        panel.set_xticks(range(len(axis.choices)), axis.choices)
    elif axis.log:
        panel.set_xscale("log")
        room = (axis.high / axis.low) ** 0.05
        panel.set_xlim(axis.low / room, axis.high * room)
        log_ticks(panel, axis.low, axis.high)
    else:
        room = 0.05 * (axis.high - axis.low)
        panel.set_xlim(axis.low - room, axis.high + room)
        few_ticks(panel.xaxis, 4)
    panel.set_xlabel(axis.name)
