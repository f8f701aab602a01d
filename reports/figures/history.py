"""Optimisation history: the value of each trial of a search, and the best so far."""

from typing import Any

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Table
from reports.tables import labels
from reports.tables.cells import collect_trials, describe_metric, find_sign, run_ids
from trainables.words.metrics import display_scale, format_metric_label


@plot.use_report_style()
def draw_search_history(frame: Frame, recipe: Table) -> plot.DrawnFigure:
    """Draw a search: a dot per trial (mean over seeds, ± one sd) and a line of the best so far.

    Trials without a result are crosses on the axis.
    """
    cells, metric, digits = frame.select_study(recipe.study), recipe.metrics[0], recipe.digits
    trials, factor = collect_trials(cells, metric), display_scale(metric)
    sign = find_sign(frame, recipe.study, metric)
    title = f"{recipe.title or recipe.study}: history"
    numbers = [trial.number for trial in trials.trials]
    means = [trial.result.mean * factor for trial in trials.trials]
    sds = [(trial.result.sd or 0.0) * factor for trial in trials.trials]
    counts = [trial.result.n for trial in trials.trials]
    drawing, axes = plot.create_single_panel(title)
    if numbers:
        dots: dict[str, Any] = {"fmt": "o", "color": plot.COLOURS[5], "markersize": 4.5}
        dots["rasterized"] = len(numbers) > plot.MAX_TOOLTIPS
        axes.errorbar(numbers, means, sds if any(sds) else None, elinewidth=1, capsize=0, **dots)
        best = [value * factor for value in trials.compute_best_so_far(sign)]
        line: dict[str, Any] = {"color": plot.COLOURS[0], "linewidth": 1.8}
        axes.step(numbers, best, where="post", label="best so far", **line)
        if trials.neutral is not None:
            dashed: dict[str, Any] = {"color": plot.COLOURS[1], "linestyle": "--"}
            axes.axhline(trials.neutral.mean * factor, label="neutral", linewidth=1.4, **dashed)
        axes.legend(loc="best")
    else:
        plot.draw_empty_message(axes)
    if trials.lost:
        crosses: dict[str, Any] = {"color": "#a40e26", "transform": axes.get_xaxis_transform()}
        zeros = [0.0] * len(trials.lost)
        axes.plot(trials.lost, zeros, "x", clip_on=False, markersize=6, **crosses)
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="trial", ylabel=format_metric_label(metric))
    axes.grid()
    caption = (
        f"{describe_metric(frame, metric)}, of {len(counts)} trials in the "
        f"order of their proposal{'; bars: ± one sd' if max(counts, default=0) > 1 else ''}, "
        f"{plot.format_counts(counts)} each; line: the best so far."
    )
    if trials.lost:
        caption += f" Crosses: {len(trials.lost)} without a result."
    if trials.neutral is not None:
        caption += " Dashed: neutral, the method switched off."
    spots = []
    for number, mean, sd in zip(numbers, means, sds, strict=True):
        scatter = f" ± {labels.format_number(sd, digits)}" if sd else ""
        text = f"trial {number}: {labels.format_number(mean, digits)}{scatter}"
        spots.append(plot.Tooltip(axes, number, mean, text))
    key = labels.to_slug(f"history_{recipe.study}_{metric}")
    runs = run_ids(cells)
    return plot.DrawnFigure(key, recipe.study, title, caption, drawing, runs, tuple(spots))
