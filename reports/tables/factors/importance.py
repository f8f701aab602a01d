"""Importances of a search's parameters."""

from __future__ import annotations

import pandas as pd

from reports.errors import ReportError
from reports.frame import Frame
from reports.recipe import Table
from reports.stats.describe import summary
from reports.stats.importance import LEAST, Importances, importances
from reports.tables.beside import NEUTRAL
from reports.tables.cells import by_seed, protocol_note
from reports.tables.labels import coordinate_names, level, metric_label, slug
from reports.tables.model import Field, Sheet

COLUMNS = ("parameter", "searched", "importance", "evaluator", "n", "conditional", "metric")


def importance(frame: Frame, recipe: Table, cells: pd.DataFrame) -> Sheet:
    """The share of each parameter, by the recipe's evaluator, over the finished trials.

    Raises:
        ReportError: the study is no search.
    """
    spec = (frame.document.get("studies") or {}).get(recipe.study) or {}
    space = spec.get("space")
    if frame.design(recipe.study) != "search" or space is None:
        raise ReportError(
            f"report: found {recipe.study}, a {frame.design(recipe.study)} study, in a table of "
            "importances; expected a search"
        )
    metric = recipe.metrics[0]
    params, values = [], []
    for _, mine in cells.groupby("cell", sort=False):
        result = summary(list(by_seed(mine, metric).values()))
        coords = mine["coords"].iloc[0]
        if result is not None and NEUTRAL not in coords:  # which is no draw from the space
            params.append(coords)
            values.append(result.mean)
    shares = importances(params, values, space, evaluator=recipe.evaluator)
    notes = [protocol_note(frame, recipe.metrics)]
    rows: list[tuple[Field, ...]] = []
    numbers: list[tuple[object, ...]] = []
    if shares is None:
        notes.append(
            f"Importances: none, {len(values)} trials are finished and at least {LEAST} are needed."
        )
    else:
        names = coordinate_names(list(shares.shares))
        for name, (path, share) in zip(names, shares.shares.items(), strict=True):
            where = _searched(space[path])
            rows.append((Field(name), Field(where), Field(f"{100 * share:.1f}")))
            numbers.append(
                (
                    path,
                    where,
                    share,
                    shares.evaluator,
                    shares.n,
                    path in shares.conditional,
                    metric,
                )
            )
        notes += _notes(shares, metric)
    return Sheet(
        recipe,
        slug(f"importance_{recipe.study}"),
        recipe.title or f"{recipe.study}: importances",
        ("parameter", "searched", "importance (%)"),
        2,
        tuple(rows),
        COLUMNS,
        tuple(numbers),
        tuple(notes),
    )


def _notes(told: Importances, metric: str) -> list[str]:
    what = (
        "how differently a parameter is spread among the best trials and among all"
        if told.target is not None
        else "the variance of a forest's prediction that a parameter explains alone"
    )
    notes = [
        f"Importance for {metric_label(metric)}: {told.evaluator}; {what}, as a share of the sum."
    ]
    if told.conditional and not told.dropped:
        notes.append(f"Conditional, judged where active: {', '.join(told.conditional)}.")
    if told.dropped:
        notes.append(f"Conditional, left out: {', '.join(told.dropped)}.")
    return notes + [f"Caution: {text}." for text in told.warnings]


def _searched(axis: dict[str, object]) -> str:
    if axis.get("choice") is not None:
        choices: list[object] = list(axis["choice"])  # type: ignore[call-overload]
        return ", ".join(level(choice) for choice in choices)
    log = ", log" if axis.get("log") else ""
    return f"{level(axis['low'])} … {level(axis['high'])}{log}"
