"""Bars of a search's importances, by Optuna's public evaluators (`reports/stats/importance.py`)."""

from __future__ import annotations

from matplotlib.figure import Figure as Canvas

from reports.figures.drawn import COLOURS, WIDTH, Drawn, Spot, empty, heading, lined, said, style
from reports.frame import Frame
from reports.parts.figures import ImportanceOptions
from reports.recipe import Figure
from reports.stats.importance import LEAST, Importances
from reports.tables.cells import gaps, protocol, run_ids
from reports.tables.factors.importance import judged, space_of
from reports.tables.labels import coordinate_names, greek, metric_label, slug


def importance(frame: Frame, recipe: Figure) -> Drawn:
    """A bar a parameter, the largest on top, as shares of their sum.

    Raises:
        ReportError: the study is no search.
    """
    study = recipe.studies[0]
    options = ImportanceOptions.model_validate(recipe.options)
    cells = frame.study(study)
    shares, finished = judged(cells, recipe.metric, space_of(frame, study), options.evaluator)
    title = greek(recipe.title) or f"{study}: importances"
    with style():
        figure, spots = _figure(shares, title)
    caption = (
        f"Share of each parameter in what matters for {metric_label(recipe.metric)}, "
        f"{protocol(frame)}: "
    )
    if shares is None:
        caption += f"none, {finished} trials are finished and at least {LEAST} are needed."
    else:
        caption += f"{shares.evaluator}, no intervals."
        caption += "".join(f" Caution: {text}." for text in shares.warnings)
    key = slug(f"importance_{study}_{recipe.metric}")
    caption = said(recipe.caption, caption)
    return Drawn(key, study, title, caption, figure, run_ids(cells), gaps(cells), tuple(spots))


def _figure(told: Importances | None, title: str) -> tuple[Canvas, list[Spot]]:
    shares = told.shares if told else {}
    figure = Canvas(figsize=(WIDTH, 0.9 + 0.27 * max(len(shares), 2)), layout="constrained")
    panel = figure.add_subplot()
    heading(panel, title)
    panel.set_xlabel("importance (%)")
    if not shares:
        empty(panel, "too few trials")
        return figure, []
    names, values = coordinate_names(list(shares)), [100 * share for share in shares.values()]
    bars = panel.barh(range(len(names)), values, height=0.66, color=COLOURS[0])
    panel.bar_label(bars, [f"{value:.1f}" for value in values], padding=4)
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.tick_params(axis="y", length=0)
    panel.set_xlim(0, 1.12 * max(*values, 1.0))
    lined(panel, "x")
    return figure, [
        Spot(panel, value, at, f"{path}: {value:.1f} %")
        for at, (path, value) in enumerate(zip(shares, values, strict=True))
    ]
