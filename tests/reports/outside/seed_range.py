"""A table that is not ours: the smallest and the largest seed of each cell."""

from __future__ import annotations

import pandas as pd

from reports.frame import Frame
from reports.recipe import Table
from reports.tables.cells import group_by_seed
from reports.tables.model import Field, Sheet


def seed_range(frame: Frame, recipe: Table, cells: pd.DataFrame) -> Sheet:
    metric, rows = recipe.metrics[0], []
    for cell, mine in cells.groupby("cell", sort=False):
        scores = group_by_seed(mine, metric).values()
        rows.append((str(cell), min(scores), max(scores)))
    return Sheet(
        recipe,
        f"table_range_{recipe.study}",
        recipe.title or "Range over seeds",
        ("cell", "least", "most"),
        1,
        tuple(tuple(Field(str(value)) for value in row) for row in rows),
        ("cell", "least", "most"),
        tuple(rows),
    )
