"""Parallel coordinates of a search: one line per trial, through its parameters to its metric."""

from typing import Any

import reports.figures.figure as plot
from reports.figures.axes import AxesOptions, Axis, select_axes
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables import labels
from reports.tables.cells import Trial, collect_trials, find_protocol

BELOW = -0.12  # height of a line at a conditional parameter that its trial does not have


@plot.figure(AxesOptions)
def parallel(frame: Frame, recipe: Figure, options: AxesOptions) -> plot.DrawnFigure:
    """Draw one axis per parameter, from low to high; the metric is last.

    Example:
        >>> Figure(kind="parallel", studies=("terms",)).metric
        'val/map_at_r'
    """
    from matplotlib.collections import LineCollection

    study, metric = recipe.studies[0], recipe.metric
    axes, cells = select_axes(frame, recipe, options), frame.select_study(study)
    trials = collect_trials(cells, metric)
    means = [trial.result.mean for trial in trials.trials]
    ends = (min(means, default=0.0), max(means, default=1.0))
    sign = -1 if labels.is_lower_better(metric) else 1
    ranked = sorted(trials.trials, key=lambda trial: sign * trial.result.mean)  # the best on top
    heights = [compute_line_heights(trial, axes, ends) for trial in ranked]
    title = labels.replace_greek_names(recipe.title) or f"{study}: parallel coordinates"
    drawing, panel = plot.create_single_panel(title)
    panel.title.set_position((0, 1.12))
    if best := trials.find_best(metric):
        lines = LineCollection(
            [list(enumerate(line)) for line in heights],
            array=[sign * trial.result.mean for trial in ranked],
            cmap=plot.trim_colormap("cividis", 0.25, 1),  # without shades as dark as a dark page
            linewidths=1.1,
            alpha=0.85,
            rasterized=len(ranked) > plot.MAX_TOOLTIPS,
        )
        panel.add_collection(lines)
        panel.plot(heights[ranked.index(best)], color=plot.COLOURS[1], linewidth=2.4)
    else:
        plot.draw_empty_message(panel)
    _draw_axes(panel, axes, metric, ends)
    spots = []
    for trial, line in zip(ranked, heights, strict=True):
        settings = [
            f"{axis.name} = {labels.format_level(trial.coords[axis.path])}"
            for axis in axes
            if axis.path in trial.coords
        ]
        value = labels.format_number(trial.result.mean * labels.display_scale(metric), 2)
        text = f"trial {trial.cell}: {value} at {', '.join(settings)}"
        spots.append(plot.Tooltip(panel, len(axes), line[-1], text))
    caption = (
        f"One line per trial: {len(ranked)} trials, "
        f"{plot.format_seed_counts([trial.result.n for trial in ranked])} each, through their "
        f"parameters to {labels.format_metric_label(metric)}, {find_protocol(frame)}; brighter: "
        "better; thick: the best. Axes span the ranges that were searched."
    )
    if any(axis.path not in trial.coords for trial in ranked for axis in axes):
        caption += " Below an axis: a trial without that parameter."
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def compute_line_heights(trial: Trial, axes: list[Axis], ends: tuple[float, float]) -> list[float]:
    """Return the heights of a trial's line on all axes as shares of each, the metric's last."""
    low, high = ends
    heights = [
        axis.to_axis_fraction(trial.coords[axis.path]) if axis.path in trial.coords else BELOW
        for axis in axes
    ]
    return [*heights, (trial.result.mean - low) / (high - low) if high > low else 0.5]


def _draw_axes(panel: plot.Axes, axes: list[Axis], metric: str, ends: tuple[float, float]) -> None:
    """Draw each axis as a line with its ends or choices as words and its name below."""
    panel.set(xlim=(-0.4, len(axes) + 0.4), ylim=(-0.14, 1.1), yticks=[])
    panel.spines[:].set_visible(False)
    names = [axis.name.replace(".", ".\n") for axis in axes]
    panel.set_xticks(range(len(axes) + 1), [*names, labels.format_metric_name(metric)])
    panel.tick_params(length=0)
    panel.vlines(range(len(axes) + 1), 0, 1, color="black", linewidth=0.8)
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    ends_text = [labels.format_number(end * labels.display_scale(metric), 2) for end in ends]
    for i, axis in enumerate([*axes, None]):
        if axis is not None and axis.choices:
            for choice in axis.choices:
                height = axis.to_axis_fraction(choice)
                panel.text(i, height, choice, ha="center", va="center", bbox=box)
            continue
        low, high = map(labels.format_level, [axis.low, axis.high]) if axis else ends_text
        panel.text(i, -0.03, low, ha="center", va="top", bbox=box)
        panel.text(i, 1.03, high, ha="center", va="bottom")
