"""The trials of a search: in the order of their proposal, and against each parameter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Figure, FigureOptions
from reports.tables import labels
from reports.tables.cells import collect_trials, describe_metric, find_sign
from reports.tables.search import find_search_space
from trainables.words.metrics import display_scale, format_metric_label


class HistoryOptions(FigureOptions):
    """Options of `history`.

    digits: decimals of percentages.
    """

    shown_as = "search"
    digits: int = Field(2, ge=0, le=6)


@plot.figure(HistoryOptions)
def history(frame: Frame, recipe: Figure, options: HistoryOptions) -> plot.DrawnFigure:
    """Draw a search: a dot per trial (mean over seeds, ± one sd) and a line of the best so far.

    Trials without a result are crosses on the axis.
    """
    study, metric, digits = recipe.studies[0], recipe.metric, options.digits
    cells = frame.select_study(study)
    trials, factor = collect_trials(cells, metric), display_scale(metric)
    sign = find_sign(frame, study, metric)
    title = labels.replace_greek_names(recipe.title) or f"{study}: history"
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
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


class AxesOptions(FigureOptions):
    """Options of `slices`.

    axes: parameters of the search, in this order; default: all.
    """

    shown_as = "search"
    axes: tuple[str, ...] = Field((), max_length=12)

    def factors(self) -> Mapping[str, tuple[str, ...]]:
        return {"axes": self.axes}


@dataclass(frozen=True)
class SearchedAxis:
    """One parameter: `choices` as they are listed, or numbers from `low` to `high`."""

    path: str
    name: str
    log: bool
    low: float
    high: float
    choices: tuple[str, ...] = ()

    def locate_value(self, value: Any) -> float:
        """Return the position of a value: the number itself, or the index of a choice."""
        return float(self.choices.index(labels.format_level(value)) if self.choices else value)


@plot.figure(AxesOptions)
def slices(frame: Frame, recipe: Figure, options: AxesOptions) -> plot.DrawnFigure:
    """Draw one panel per parameter of a search: each trial's mean over seeds against its value.

    Later proposals are darker. The panel of a conditional parameter has only trials that have it.
    """
    import matplotlib as mpl

    study, metric = recipe.studies[0], recipe.metric
    axes, cells = select_axes(frame, recipe, options), frame.select_study(study)
    trials, factor = collect_trials(cells, metric), display_scale(metric)
    title = labels.replace_greek_names(recipe.title) or f"{study}: each parameter"
    size = (plot.WIDTH, 0.5, 1.75)
    drawing, panels = plot.create_panel_grid(len(axes), 3, title, size, sharey=True)
    best = trials.find_best(find_sign(frame, study, metric))
    last = max((trial.number for trial in trials.trials), default=1)
    # shades that are seen on a light and on a dark page
    blues = mpl.colors.ListedColormap(mpl.colormaps["Blues"](np.linspace(0.3, 0.8, 256)))
    shade: dict[str, Any] = {"cmap": blues, "vmin": 0, "vmax": last}
    orange: dict[str, Any] = {"color": plot.COLOURS[1]}
    is_dense = len(trials.trials) * len(axes) > plot.MAX_TOOLTIPS
    spots = []
    for panel, axis in zip(panels, axes, strict=True):
        # trials that have the parameter
        points = [trial for trial in trials.trials if axis.path in trial.coords]
        x = [axis.locate_value(trial.coords[axis.path]) for trial in points]
        y = [trial.result.mean * factor for trial in points]
        numbers = [trial.number for trial in points]
        panel.scatter(x, y, s=18, c=numbers, rasterized=is_dense, **shade)
        if not points:
            plot.draw_empty_message(panel)
        if best in points:
            i = points.index(best)
            panel.plot(x[i], y[i], "*", markersize=10, markeredgecolor="white", **orange)
        if trials.neutral is not None:
            panel.axhline(trials.neutral.mean * factor, linestyle="--", linewidth=1.2, **orange)
        # the range that was searched, with a little room at both ends
        if axis.choices:
            panel.set_xlim(-0.5, len(axis.choices) - 0.5)
            panel.set_xticks(range(len(axis.choices)), axis.choices)
        elif axis.log:
            panel.set_xscale("log")
            room = (axis.high / axis.low) ** 0.05
            panel.set_xlim(axis.low / room, axis.high * room)
            plot.set_log_ticks(panel, axis.low, axis.high)
        else:
            room = 0.05 * (axis.high - axis.low)
            panel.set_xlim(axis.low - room, axis.high + room)
            panel.locator_params(axis="x", nbins=4)
        panel.set_xlabel(axis.name)
        panel.locator_params(axis="y", nbins=4)
        panel.margins(y=0.12)
        panel.grid()
        for trial, at_x, at_y in zip(points, x, y, strict=True):
            value = f"{axis.name} = {labels.format_level(trial.coords[axis.path])}"
            text = f"trial {trial.cell}: {labels.format_number(at_y, 2)} at {value}"
            spots.append(plot.Tooltip(panel, at_x, at_y, text))
    drawing.supylabel(format_metric_label(metric), fontsize=plot.TEXT)
    caption = (
        f"{describe_metric(frame, metric)}, of {len(trials.trials)} trials, "
        f"{plot.format_counts([item.result.n for item in trials.trials])} each, against each "
        "parameter that was searched, over the whole range; darker: proposed later; star: the best."
    )
    if trials.neutral is not None:
        caption += " Dashed: neutral, the method switched off."
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)


def select_axes(frame: Frame, recipe: Figure, options: AxesOptions) -> list[SearchedAxis]:
    """Return an axis for each parameter that the options name, or else that the search has."""
    space = find_search_space(frame, recipe.studies[0])
    paths = list(dict.fromkeys(options.axes or space))
    axes = []
    for path, name in zip(paths, labels.format_coordinates(paths), strict=True):
        axis = space[path]
        choices = tuple(map(labels.format_level, axis.get("choice") or ()))
        low, high = (0, len(choices) - 1) if choices else (axis["low"], axis["high"])  # positions
        ends = float(low), float(high)
        axes.append(SearchedAxis(path, name, bool(axis.get("log")), *ends, choices))
    return axes
