"""Bars of Shapley values: each component's share of what all of them together gain."""

from __future__ import annotations

from reports.errors import ReportError
from reports.figures.drawn import (
    COLOURS,
    Canvas,
    Drawn,
    FigureOptions,
    Spot,
    empty,
    figure,
    finish,
    lined,
    single,
)
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.shapley import Attribution
from reports.tables.cells import cells_of, levels_of, protocol
from reports.tables.effects import attribute, attribution_note, is_full
from reports.tables.labels import (
    coordinate_names,
    difference_label,
    greek,
    scale,
    with_interval,
)


class ShapleyOptions(FigureOptions):
    """Of `shapley`, bars of the attribution in a table of effects."""

    shown_as = "effects"


@figure(ShapleyOptions)
def shapley(frame: Frame, recipe: Figure, _: ShapleyOptions) -> Drawn:
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
    drawing, spots = _draw(attribution, metric, title)
    caption = f"{protocol(frame)}. {attribution_note(attribution, levels, metric, 2)}"
    caption = caption[0].upper() + caption[1:]
    return finish(
        recipe, cells, drawing, spots, title=title, caption=caption, key=f"shapley_{study}_{metric}"
    )


def _draw(attribution: Attribution | None, metric: str, title: str) -> tuple[Canvas, list[Spot]]:
    count = len(attribution.values) if attribution else 2
    drawing, panel = single(title, 0.95 + 0.3 * max(count, 2))
    panel.set_xlabel(f"Shapley value, {difference_label(metric)}")
    if attribution is None:
        empty(panel, "no seed has every cell")
        return drawing, []
    factor = scale(metric)
    ranked = sorted(attribution.values, key=lambda name: -attribution.values[name])
    values = [attribution.values[name] * factor for name in ranked]
    panel.barh(range(count), values, height=0.6, color=COLOURS[5])
    spots = []
    for at, (name, value) in enumerate(zip(ranked, values, strict=True)):
        low, high = attribution.intervals[name] or (None, None)
        if low is not None and high is not None:
            sides = [[value - low * factor], [high * factor - value]]
            panel.errorbar(value, at, xerr=sides, color="black", capsize=3)
        words = with_interval(attribution.values[name], low, high, metric, 2)
        spots.append(Spot(panel, value, at, f"{name}: {words}"))
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set_yticks(range(count), coordinate_names(ranked))
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    lined(panel, "x")
    return drawing, spots
