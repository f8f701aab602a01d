"""Judge the rows of a table: primary metric, δ, resolution, families.

A family is the rows of one table with the same baseline row (one data set, one base loss), by one
metric. All intervals and verdicts of a report come from `judge_family` or `judge_terms`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from reports.frame import Frame
from reports.recipe import Table
from reports.stats.blocks import Blocks
from reports.stats.comparison_rule import Judgement, Sample, judge, load_rule
from reports.tables.labels import choose_smallest_effect, display_scale, is_lower_better

if TYPE_CHECKING:
    import pandas as pd

MOST_IMAGES = 10**6  # of a split, whose number the values of Recall@k and of accuracy give


def choose_primary(frame: Frame, study: str, metrics: Sequence[str]) -> str:
    """Return the metric that decides a table.

    It is `report.primary`, by default the study's objective on the test split; if the table lacks
    it, the same metric of another split, else the table's first.
    """
    objective, _ = frame.get_objective(study)
    primary = frame.recipe.primary or f"test/{objective.rpartition('/')[2]}"
    same = [metric for metric in metrics if metric.endswith(f"/{primary.rpartition('/')[2]}")]
    return primary if primary in metrics else [*same, *metrics][0]


def put_primary_first(frame: Frame, recipe: Table) -> Table:
    """Return a table's recipe with its deciding metric first."""
    primary = choose_primary(frame, recipe.study, recipe.metrics)
    others = (metric for metric in recipe.metrics if metric != primary)
    return recipe.model_copy(update={"metrics": (primary, *others)})


def find_smallest(frame: Frame, metric: str) -> float:
    """Return δ on the scale of the runs; 0 if the metric has none."""
    return choose_smallest_effect(frame.recipe.smallest, metric) / display_scale(metric)


def find_resolution(cells: pd.DataFrame, metric: str) -> float:
    """Return 1/N for a metric that is a mean over N images; 0 if N is unknown.

    Recall@k and accuracy are k/N, so N is the least common denominator of their values.
    """
    split = metric.rpartition("/")[0]
    names = [name for name in cells.columns if str(name).startswith(f"{split}/recall_at_")]
    names += [name for name in (f"{split}/top_1_accuracy",) if name in cells.columns]
    if not names or cells["fold"].notna().any():
        return 0.0
    values = {float(value) for name in names for value in cells[name].dropna()}
    return infer_resolution(values)


def infer_resolution(shares: Iterable[float]) -> float:
    """Return 1/N for the least common denominator N ≤ 10⁶ of these shares, else 0."""
    images = 1
    for share in shares:
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


def judge_family(
    frame: Frame,
    metric: str,
    baseline: tuple[str, Blocks],
    rows: Mapping[str, Blocks],
    resolution: float,
    *,
    first_stage: Collection[int] | None = None,
) -> dict[str, Judgement]:
    """Judge rows against their baseline by the rule of the report.

    Args:
        baseline: cell and values by seed.
        rows: the same for the other rows.
        resolution: see `find_resolution`.
    """
    cell, values = baseline
    return judge(
        load_rule(frame.recipe.rule),
        Sample(
            values, {name: align_blocks(values, row) for name, row in rows.items()}, first_stage
        ),
        smallest=find_smallest(frame, metric),
        resolution=resolution,
        lower_is_better=is_lower_better(metric),
        baseline=cell,
    )
