"""Judge the rows of a table: primary metric, δ, resolution, families.

A family is the rows of one table with the same baseline row (one data set, one base loss), by one
metric. Rows are judged in `comparison.py`, the terms of a factorial in `verdict.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from reports.frame import Frame
from reports.recipe import Table
from reports.stats.blocks import Blocks
from reports.tables.labels import choose_smallest_effect, display_scale

if TYPE_CHECKING:
    import pandas as pd

MOST_IMAGES = 10**6  # of a split


def put_primary_first(frame: Frame, recipe: Table) -> Table:
    """Return a table's recipe with its deciding metric first.

    It is `report.primary`, by default the study's objective on the test split; if the table lacks
    it, the same metric of another split, else the table's first.
    """
    objective, _ = frame.get_objective(recipe.study)
    primary = frame.recipe.primary or f"test/{objective.rpartition('/')[2]}"
    if primary not in recipe.metrics:
        name = f"/{primary.rpartition('/')[2]}"
        same_name = (metric for metric in recipe.metrics if metric.endswith(name))
        primary = next(same_name, recipe.metrics[0])
    others = (metric for metric in recipe.metrics if metric != primary)
    return recipe.model_copy(update={"metrics": (primary, *others)})


def find_smallest(frame: Frame, metric: str) -> float:
    """Return δ on the scale of the runs; 0 if the metric has none."""
    return choose_smallest_effect(frame.recipe.smallest, metric) / display_scale(metric)


def find_resolution(cells: pd.DataFrame, metric: str) -> float:
    """Return 1/N for a metric that is a mean over N images; 0 if N is unknown or above 10⁶.

    Recall@k and accuracy are k/N, so N is the least common denominator of their values.
    """
    split = metric.rpartition("/")[0]
    prefixes = (f"{split}/recall_at_", f"{split}/top_1_accuracy")
    names = [name for name in cells.columns if str(name).startswith(prefixes)]
    if cells["fold"].notna().any():
        return 0.0
    images = 1
    for share in {float(value) for name in names for value in cells[name].dropna()}:
        fraction = Fraction(share).limit_denominator(MOST_IMAGES)
        images = math.lcm(images, fraction.denominator)
        if images > MOST_IMAGES or abs(float(fraction) - share) > 1e-12:
            return 0.0
    return 1 / images if images > 1 else 0.0


def align_blocks(baseline: Blocks, row: Blocks) -> Blocks:
    """Return the row with the baseline's seeds as keys.

    A row without a common seed (`shift_seeds`) is independent of its baseline, so any pairing is
    valid; the order of the seeds is used.
    """
    if not row or baseline.keys() & row.keys():
        return row
    return dict(zip(sorted(baseline), (row[seed] for seed in sorted(row)), strict=False))
