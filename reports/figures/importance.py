"""Bars of a search's importances, by Optuna's public evaluators (`reports/stats/importance.py`)."""

from typing import Literal

import reports.figures.figure as plot
from reports.frame import Frame
from reports.recipe import Figure
from reports.stats.importance import LEAST
from reports.tables import labels
from reports.tables.cells import find_protocol
from reports.tables.importance import find_search_space, judge_parameters


class ImportanceOptions(plot.FigureOptions):
    """Options of `importance`, bars of the numbers of an importance table.

    evaluator: as in the table.
    """

    shown_as = "search"
    evaluator: Literal["ped_anova", "fanova"] = "ped_anova"


@plot.figure(ImportanceOptions)
def importance(frame: Frame, recipe: Figure, options: ImportanceOptions) -> plot.DrawnFigure:
    """Draw a bar per parameter, the largest on top, as shares of their sum.

    Example:
        >>> Figure(kind="importance", studies=("terms",)).metric
        'val/map_at_r'
    """
    study, metric = recipe.studies[0], recipe.metric
    cells, space = frame.select_study(study), find_search_space(frame, study)
    importances, count = judge_parameters(cells, metric, space, options.evaluator)
    title = labels.replace_greek_names(recipe.title) or f"{study}: importances"
    shares = importances.shares if importances else {}
    drawing, panel = plot.create_single_panel(title, 0.9 + 0.27 * max(len(shares), 2))
    panel.set_xlabel("importance (%)")
    spots = []
    if shares:
        names, values = labels.format_coordinates(list(shares)), [100 * v for v in shares.values()]
        bars = plot.draw_bars(panel, names, values, plot.COLOURS[0], 0.66)
        panel.bar_label(bars, [f"{value:.1f}" for value in values], padding=4)
        panel.set_xlim(0, 1.12 * max(*values, 1.0))
        for i, (path, value) in enumerate(zip(shares, values, strict=True)):
            spots.append(plot.Tooltip(panel, value, i, f"{path}: {value:.1f} %"))
    else:
        plot.draw_empty_message(panel, "too few trials")
    caption = (
        f"Share of each parameter in what matters for {labels.format_metric_label(metric)}, "
        f"{find_protocol(frame)}: "
    )
    if importances is None:
        caption += f"none, {count} trials are finished and at least {LEAST} are needed."
    else:
        caption += f"{importances.evaluator}, no intervals."
        caption += "".join(f" Caution: {text}." for text in importances.warnings)
    return plot.build_figure(recipe, cells, drawing, spots, title=title, caption=caption)
