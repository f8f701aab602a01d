"""Bars of Shapley values: each component's share of what all of them together gain."""

from __future__ import annotations

import reports.figures.drawn as plot
from reports.errors import ReportError
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables.cells import cells_of, levels_of, protocol
from reports.tables.effects import attribute, attribution_note, is_full
from reports.tables.labels import coordinate_names, difference_label, greek, scale, with_interval


class ShapleyOptions(plot.FigureOptions):
    """Of `shapley`, bars of the attribution in a table of effects."""

    shown_as = "effects"


@plot.figure(ShapleyOptions)
def shapley(frame: Frame, recipe: Figure, _: ShapleyOptions) -> plot.Drawn:
    """Draw a bar a component with its 95 % interval over seeds: numbers of the table of effects.

    Raises:
        ReportError: the study is no full factorial of two or more factors with two levels.
    """
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.study(study)
    levels, data = levels_of(frame, cells), cells_of(frame, cells, metric)
    if not is_full(data, levels):
        raise ReportError(
            f"report.figures: {study} is no full factorial of two levels each, as a figure of "
            "Shapley values needs; name a study with all combinations of its components"
        )
    attribution = attribute(data, levels)
    title = greek(recipe.title) or f"{study}: what each component gains"
    shares, factor = attribution.values if attribution else {}, scale(metric)
    drawing, panel = plot.single(title, 0.95 + 0.3 * max(len(shares), 2))
    panel.set_xlabel(f"Shapley value, {difference_label(metric)}")
    spots = []
    if attribution is None:
        plot.empty(panel, "no seed has every cell")
    else:
        ranked = sorted(shares, key=lambda name: -shares[name])
        values = [shares[name] * factor for name in ranked]
        plot.bars(panel, coordinate_names(ranked), values, plot.COLOURS[5], 0.6)
        for at, (name, value) in enumerate(zip(ranked, values, strict=True)):
            low, high = attribution.intervals[name] or (None, None)
            if low is not None and high is not None:
                sides = [[value - low * factor], [high * factor - value]]
                panel.errorbar(value, at, xerr=sides, color="black")
            words = with_interval(shares[name], low, high, metric, 2)
            spots.append(plot.Spot(panel, value, at, f"{name}: {words}"))
        panel.axvline(0, color="black", linewidth=0.8)
    note = attribution_note(attribution, levels, metric, 2)
    caption = f"{protocol(frame).capitalize()}. {note}"
    return plot.finish(recipe, cells, drawing, spots, title=title, caption=caption)
