"""Bars of Shapley values: each component's share of the gain of all components together."""

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Figure
from reports.tables import labels
from reports.tables.cells import find_protocol
from reports.tables.effects import attribute_with_error, explain_attribution, fit_study
from trainables.words.metrics import display_scale, format_difference_label


class ShapleyOptions(plot.FigureOptions):
    """Options of `shapley`, bars of the attribution in a table of effects."""

    shown_as = "effects"


@plot.figure(ShapleyOptions)
def shapley(frame: Frame, recipe: Figure, _: ShapleyOptions) -> plot.DrawnFigure:
    """Draw one bar per component: its Shapley value and interval, as in a table of effects."""
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.select_combinations(study)
    factorial = fit_study(frame, cells, metric)
    attribution = attribute_with_error(factorial) if factorial.is_full else None
    title = labels.replace_greek_names(recipe.title) or f"{study}: what each component gains"
    shares, factor = attribution.values if attribution else {}, display_scale(metric)
    ranked = sorted(shares, key=lambda name: -shares[name])
    drawing, panel = plot.create_single_panel(title, 0.95 + 0.3 * max(len(shares), 2))
    panel.set_xlabel(f"Shapley value, {format_difference_label(metric)}")
    spots = []
    if attribution is None:
        plot.draw_empty_message(panel, "no seed has every cell")
    else:
        values = [shares[name] * factor for name in ranked]
        panel.barh(range(len(ranked)), values, height=0.6, color=plot.COLOURS[5])
        panel.set_yticks(range(len(ranked)), labels.format_coordinates(ranked))
        panel.invert_yaxis()
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x")
        for i, (name, value) in enumerate(zip(ranked, values, strict=True)):
            low, high = attribution.intervals[name]
            if low is not None and high is not None:
                bars = [[value - low * factor], [high * factor - value]]
                panel.errorbar(value, i, xerr=bars, color="black")
            text = labels.format_with_interval(shares[name], low, high, metric, 2)
            spots.append(plot.Tooltip(panel, value, i, f"{name}: {text}"))
        panel.axvline(0, color="black", linewidth=0.8)
    note = explain_attribution(attribution, factorial.levels, metric, 2)
    caption = f"{find_protocol(frame).capitalize()}. {note}"
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)
