"""Bars of a search's importances, by Optuna's public evaluators (`reports/stats/importance.py`)."""

from __future__ import annotations

from typing import Literal

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
from reports.stats.importance import LEAST, Importances
from reports.tables.cells import protocol
from reports.tables.importance import judge_parameters, space_of
from reports.tables.labels import coordinate_names, greek, metric_label


class ImportanceOptions(FigureOptions):
    """Of `importance`, bars of the numbers of an importance table. evaluator: as there."""

    shown_as = "search"
    evaluator: Literal["ped_anova", "fanova"] = "ped_anova"


@figure(ImportanceOptions)
def importance(frame: Frame, recipe: Figure, options: ImportanceOptions) -> Drawn:
    """Draw a bar a parameter, the largest on top, as shares of their sum.

    Raises:
        ReportError: the study is no search.
    """
    study, metric = recipe.studies[0], recipe.metric
    cells = frame.study(study)
    shares, count = judge_parameters(cells, metric, space_of(frame, study), options.evaluator)
    title = greek(recipe.title) or f"{study}: importances"
    drawing, spots = _draw(shares, title)
    caption = (
        f"Share of each parameter in what matters for {metric_label(metric)}, {protocol(frame)}: "
    )
    if shares is None:
        caption += f"none, {count} trials are finished and at least {LEAST} are needed."
    else:
        caption += f"{shares.evaluator}, no intervals."
        caption += "".join(f" Caution: {text}." for text in shares.warnings)
    return finish(
        recipe,
        cells,
        drawing,
        spots,
        title=title,
        caption=caption,
        key=f"importance_{study}_{metric}",
    )


def _draw(importances: Importances | None, title: str) -> tuple[Canvas, list[Spot]]:
    shares = importances.shares if importances else {}
    drawing, panel = single(title, 0.9 + 0.27 * max(len(shares), 2))
    panel.set_xlabel("importance (%)")
    if not shares:
        empty(panel, "too few trials")
        return drawing, []
    names, values = coordinate_names(list(shares)), [100 * share for share in shares.values()]
    bars = panel.barh(range(len(names)), values, height=0.66, color=COLOURS[0])
    panel.bar_label(bars, [f"{value:.1f}" for value in values], padding=4)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    panel.set_xlim(0, 1.12 * max(*values, 1.0))
    lined(panel, "x")
    return drawing, [
        Spot(panel, value, at, f"{path}: {value:.1f} %")
        for at, (path, value) in enumerate(zip(shares, values, strict=True))
    ]
