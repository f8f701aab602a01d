"""Bars of Shapley values: each component's share of what all of them together gain."""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from reports.errors import ReportError
from reports.figures.drawn import COLOURS, WIDTH, Drawn, Spot, empty, heading, lined, said, style
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.shapley import Attribution
from reports.tables.cells import gaps, protocol, run_ids
from reports.tables.factors import shapley as table
from reports.tables.factors.cells import cells_of, levels_of
from reports.tables.labels import (
    coordinate_names,
    greek,
    is_share,
    metric_label,
    scale,
    slug,
    with_interval,
)


def shapley(frame: Frame, recipe: Figure) -> Drawn:
    """A bar a component with its 95 % interval over seeds; the numbers of the table of effects.

    Raises:
        ReportError: the study is no full factorial of two or more factors with two levels.
    """
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.study(study)
    levels, data = levels_of(frame, cells), cells_of(frame, cells, metric)
    if not table.is_full(data, levels):
        raise ReportError(
            f"report.figures: found {study}, which is no full factorial of two levels each, in a "
            "figure of Shapley values; expected all combinations of its components"
        )
    told = table.attribution(data, levels)
    title = greek(recipe.title) or f"{study}: what each component gains"
    with style():
        figure, spots = _figure(told, metric, title)
    caption = f"{protocol(frame)}. {table.note(told, levels, metric, 2)}"
    caption = said(recipe.caption, caption[0].upper() + caption[1:])
    key = slug(f"shapley_{study}_{metric}")
    return Drawn(key, study, title, caption, figure, run_ids(cells), gaps(cells), tuple(spots))


def _figure(told: Attribution | None, metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    count = len(told.values) if told else 2
    figure = Canvas(figsize=(WIDTH, 0.95 + 0.3 * max(count, 2)), layout="constrained")
    panel = figure.add_subplot()
    heading(panel, title)
    points = ", in points" if is_share(metric) else ""
    panel.set_xlabel(f"Shapley value, {metric_label(metric).removesuffix(' (%)')}{points}")
    if told is None:
        empty(panel, "no seed has every cell")
        return figure, []
    factor = scale(metric)
    ranked = sorted(told.values, key=lambda name: -told.values[name])
    values = [told.values[name] * factor for name in ranked]
    panel.barh(range(count), values, height=0.6, color=COLOURS[5])
    spots = []
    for at, (name, value) in enumerate(zip(ranked, values, strict=True)):
        ends = told.intervals[name]
        if ends is not None:
            sides = [[value - ends[0] * factor], [ends[1] * factor - value]]
            panel.errorbar(value, at, xerr=sides, color="black", capsize=3)
        low, high = ends or (None, None)
        words = with_interval(told.values[name], low, high, metric, 2)
        spots.append(Spot(panel, value, at, f"{name}: {words}"))
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(range(count), coordinate_names(ranked))
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    lined(panel, "x")
    return figure, spots
