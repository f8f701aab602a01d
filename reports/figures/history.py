"""Optimisation history: what each trial of a search gave, and the best so far."""

from __future__ import annotations

from reports.figures.drawn import (
    COLOURS,
    Canvas,
    Drawn,
    Spot,
    empty,
    few_ticks,
    lined,
    seeds_text,
    single,
    style,
)
from reports.frame import Frame
from reports.recipe import Table
from reports.tables.cells import Trials, gaps, protocol, run_ids, trials_of
from reports.tables.labels import metric_label, number, scale, slug


def history(frame: Frame, recipe: Table) -> Drawn:
    """Draw one dot a trial (mean over seeds, ± one sd where there are several), the best so far as
    a line, trials without a result as crosses on the axis.

    Raises:
        ReportError: unknown study.
    """
    cells, metric = frame.study(recipe.study), recipe.metrics[0]
    trials = trials_of(cells, metric)
    title = f"{recipe.title or recipe.study}: history"
    with style():
        drawing = _draw(trials, metric, title)
    counts = [each.result.n for each in trials.trials]
    spread = " ± one sd" if max(counts, default=0) > 1 else ""
    caption = (
        f"{metric_label(metric)}, {protocol(frame)}, of {len(counts)} trials in the order of "
        f"their proposal{spread}, {seeds_text(counts)} each; line: the best so far."
    )
    if trials.lost:
        caption += f" Crosses: {len(trials.lost)} without a result."
    if trials.neutral is not None:
        caption += " Dashed: neutral, the method switched off."
    factor, digits = scale(metric), recipe.digits
    spots = []
    for each in trials.trials:
        sd = "" if each.result.sd is None else f" ± {number(each.result.sd * factor, digits)}"
        value = each.result.mean * factor
        words = f"trial {each.number}: {number(value, digits)}{sd}"
        spots.append(Spot(drawing.axes[0], each.number, value, words))
    key = slug(f"history_{recipe.study}_{metric}")
    runs, lost = run_ids(cells), gaps(cells)
    return Drawn(key, recipe.study, title, caption, drawing, runs, lost, tuple(spots))


def _draw(trials: Trials, metric: str, title: str) -> Canvas:
    drawing, axes = single(title)
    factor = scale(metric)
    numbers = [each.number for each in trials.trials]
    means = [each.result.mean * factor for each in trials.trials]
    sds = [(each.result.sd or 0.0) * factor for each in trials.trials]
    if numbers:
        bars = sds if any(sds) else None
        axes.errorbar(
            numbers, means, yerr=bars, fmt="o", color=COLOURS[5], markersize=4.5, elinewidth=1
        )
        best = [value * factor for value in trials.best_so_far(metric)]
        axes.step(numbers, best, where="post", color=COLOURS[0], linewidth=1.8, label="best so far")
        if trials.neutral is not None:
            level = trials.neutral.mean * factor
            axes.axhline(level, color=COLOURS[1], linestyle="--", linewidth=1.4, label="neutral")
        axes.legend(loc="best")
    else:
        empty(axes)
    if trials.lost:
        at_axis = [0.0] * len(trials.lost)
        below = axes.get_xaxis_transform()
        axes.plot(trials.lost, at_axis, "x", color="#a40e26", transform=below, clip_on=False)
    few_ticks(axes.xaxis)
    axes.set_xlabel("trial")
    axes.set_ylabel(metric_label(metric))
    lined(axes)
    return drawing
