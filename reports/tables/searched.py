"""The best configurations of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.frame import Frame
from reports.recipe import Table
from reports.stats.describe import half_width, summary
from reports.tables.cells import (
    NEUTRAL,
    by_cell,
    fold_notes,
    gaps,
    protocol_note,
    run_ids,
    summaries,
)
from reports.tables.labels import level, metric_label, slug
from reports.tables.model import Measured, TableData, TableRow

if TYPE_CHECKING:
    import pandas as pd


def searched(frame: Frame, recipe: Table, cells: pd.DataFrame) -> TableData:
    """Return the `top` configurations by the first metric, and how many were tried or lost."""
    names = list(dict.fromkeys(n for coords in cells["coords"] for n in coords if n != NEUTRAL))
    values = {metric: by_cell(cells, metric) for metric in recipe.metrics}
    place = dict(zip(map(str, cells["cell"]), cells["idx"], strict=True))
    ranked = sorted(
        (-mean.mean, int(place[cell]), cell)
        for cell, mean in summaries(cells, recipe.metrics[0]).items()
    )
    rows = []
    for _, _, cell in ranked[: recipe.top]:
        mine = cells[cells["cell"] == cell]
        scores = {metric: list(values[metric][cell].values()) for metric in recipe.metrics}
        measured = {m: Measured(summary(own), half_width(own)) for m, own in scores.items()}
        coords = mine["coords"].iloc[0]
        labels = (cell, *(level(coords.get(name, "")) for name in names))
        rows.append(
            TableRow(cell, labels, measured, run_ids(mine), mine["seed"].nunique(), gaps(mine))
        )
    total = cells["cell"].nunique()
    by = metric_label(recipe.metrics[0])
    notes = [f"The best {len(rows)} of {total} configurations tried, by {by}."]
    if (cells["cell"] == NEUTRAL).any():
        notes.append("neutral: the method switched off, at the best rates of its baseline.")
    lost = cells[cells["status"] != "done"]
    if len(lost):
        counts = ", ".join(f"{n} {status}" for status, n in lost["status"].value_counts().items())
        notes.append(f"Without a result: {counts}.")
    notes += [protocol_note(frame, recipe.metrics), *fold_notes(cells, recipe.metrics)]
    return TableData(
        recipe,
        slug(f"table_{recipe.study}"),
        recipe.title or recipe.study,
        ("trial", *names),
        tuple(rows),
        tuple(notes),
    )
