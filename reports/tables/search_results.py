"""List the best configurations of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.frame import Frame
from reports.recipe import Table
from reports.stats.describe import half_width, summarize
from reports.tables.cells import (
    NEUTRAL,
    NEUTRAL_NOTE,
    explain_measurement,
    group_by_cell,
    list_missing_seeds,
    run_ids,
    summarize_cells,
)
from reports.tables.labels import format_level, format_metric_label, to_slug
from reports.tables.model import MeasuredMetric, TableData, TableRow

if TYPE_CHECKING:
    import pandas as pd


def searched(frame: Frame, recipe: Table, cells: pd.DataFrame) -> TableData:
    """Return the `top` configurations by the first metric, and how many were tried or lost.

    Example:
        >>> Table(kind="search", study="terms", metrics=("test/map_at_r",)).digits
        2
    """
    names = list(dict.fromkeys(n for coords in cells["coords"] for n in coords if n != NEUTRAL))
    values = {metric: group_by_cell(cells, metric) for metric in recipe.metrics}
    index = dict(zip(map(str, cells["cell"]), cells["idx"], strict=True))
    ranked = sorted(
        (-mean.mean, int(index[cell]), cell)
        for cell, mean in summarize_cells(cells, recipe.metrics[0]).items()
    )
    rows = []
    for _, _, cell in ranked[: recipe.top]:
        cell_rows = cells[cells["cell"] == cell]
        scores = {metric: list(values[metric][cell].values()) for metric in recipe.metrics}
        measured = {
            m: MeasuredMetric(summarize(seed_values), half_width(seed_values))
            for m, seed_values in scores.items()
        }
        coords = cell_rows["coords"].iloc[0]
        labels = (cell, *(format_level(coords.get(name, "")) for name in names))
        rows.append(
            TableRow(
                cell,
                labels,
                measured,
                run_ids(cell_rows),
                cell_rows["seed"].nunique(),
                list_missing_seeds(cell_rows),
            )
        )
    total = cells["cell"].nunique()
    by = format_metric_label(recipe.metrics[0])
    notes = [f"The best {len(rows)} of {total} configurations tried, by {by}."]
    if (cells["cell"] == NEUTRAL).any():
        notes.append(NEUTRAL_NOTE)
    lost = cells[cells["status"] != "done"]
    if len(lost):
        counts = ", ".join(f"{n} {status}" for status, n in lost["status"].value_counts().items())
        notes.append(f"Without a result: {counts}.")
    notes += explain_measurement(frame, recipe, cells)
    return TableData(
        recipe,
        to_slug(f"table_{recipe.study}"),
        recipe.title or recipe.study,
        ("trial", *names),
        tuple(rows),
        tuple(notes),
    )
