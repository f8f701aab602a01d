"""Estimate the importances of a search's parameters."""

from collections.abc import Mapping
from typing import Any

from reports.frame import DataFrame, Frame
from reports.recipe import Table
from reports.stats.importance import LEAST, compute_importances
from reports.tables.cells import collect_trials, explain_protocol, find_sign
from reports.tables.labels import format_coordinates, format_level, to_slug
from reports.tables.model import Field, Sheet
from trainables.words.errors import ReportError
from trainables.words.metrics import format_metric_label

COLUMNS = ("parameter", "searched", "importance", "evaluator", "n", "conditional", "metric")
MEANINGS = {
    "ped_anova": "how differently a parameter is spread among the best trials and among all",
    "fanova": "the variance of a forest's prediction that a parameter explains alone",
}


def importance(frame: Frame, recipe: Table, cells: DataFrame) -> Sheet:
    """Return a row per parameter of a search with its share of the importance."""
    metric = recipe.metrics[0]
    space = find_search_space(frame, recipe.study)
    trials = collect_trials(cells, metric).trials
    sign = find_sign(frame, recipe.study, metric)
    points = [trial.coords for trial in trials]
    values = [sign * trial.result.mean for trial in trials]
    importances = compute_importances(points, values, space, evaluator=recipe.evaluator)
    notes = [explain_protocol(frame, recipe.metrics)]
    rows: list[tuple[Field, ...]] = []
    numbers: list[tuple[object, ...]] = []
    if importances is None:
        notes.append(
            f"Importances: none, {len(trials)} trials are finished and at least {LEAST} are needed."
        )
    else:
        names = format_coordinates(list(importances.shares))
        for name, (path, share) in zip(names, importances.shares.items(), strict=True):
            axis = _format_axis(space[path])
            rows.append((Field(name), Field(axis), Field(f"{100 * share:.1f}")))
            conditional = path in importances.conditional
            source = (importances.evaluator, importances.n)
            numbers.append((path, axis, share, *source, conditional, metric))
        label = format_metric_label(metric)
        meaning = MEANINGS[recipe.evaluator]
        notes.append(
            f"Importance for {label}: {importances.evaluator}; {meaning}, as a share of the sum."
        )
        if importances.conditional:
            how = "left out" if importances.dropped else "judged where active"
            notes.append(f"Conditional, {how}: {', '.join(importances.conditional)}.")
        notes += [f"Caution: {text}." for text in importances.warnings]
    return Sheet(
        recipe,
        key=to_slug(f"importance_{recipe.study}"),
        title=recipe.title or f"{recipe.study}: importances",
        headers=("parameter", "searched", "importance (%)"),
        labels=2,
        rows=tuple(rows),
        columns=COLUMNS,
        numbers=tuple(numbers),
        notes=tuple(notes),
    )


def find_search_space(frame: Frame, study: str) -> Mapping[str, Mapping[str, Any]]:
    """Return parameter → its choices or its range, for a search; ReportError for other studies."""
    space: Mapping[str, Mapping[str, Any]] | None = frame.get_declared_study(study).get("space")
    if frame.get_design(study) != "search" or space is None:
        raise ReportError(
            f"report: {study} is a {frame.get_design(study)} study, but importances need a search "
            "study. Name a search study."
        )
    return space


def _format_axis(axis: Mapping[str, Any]) -> str:
    if axis.get("choice") is not None:
        return ", ".join(format_level(choice) for choice in axis["choice"])
    log = ", log" if axis.get("log") else ""
    return f"{format_level(axis['low'])} … {format_level(axis['high'])}{log}"
