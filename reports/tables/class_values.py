"""Read values by class of a study's trials, for tables with `blocks: classes`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.frame import DataFrame, Frame
from reports.stats.blocks import align_blocks
from reports.stats.classes import OverClasses
from reports.stats.comparison_rule import Sample

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassValues:
    """The values of a row at one seed: means and numbers of queries [C] of the same classes."""

    digest: str  # of the classes' names
    means: Floats
    queries: Floats

    def has_classes_of(self, other: "ClassValues") -> bool:
        """Return whether both are of the same classes with the same numbers of queries."""
        return self.digest == other.digest and np.array_equal(self.queries, other.queries)


def collect_class_values(
    frame: Frame, cells: DataFrame, metric: str
) -> dict[str, dict[int, ClassValues]]:
    """Return cell → seed → values by class, means over folds and searches.

    A seed is left out if one of its trials has no values, or values of other classes.
    """
    split, _, name = metric.rpartition("/")
    values: dict[str, dict[int, ClassValues]] = {}
    if frame.read_classes is None:
        return values
    for (cell, seed), group in cells.groupby(["cell", "seed"], sort=False):
        records = [frame.read_classes(trial_id, split) for trial_id in group["trial_id"]]
        if (of_seed := average_records(records, name)) is not None:
            values.setdefault(str(cell), {})[int(seed)] = of_seed
    return values


def average_records(records: Sequence[Mapping[str, Any] | None], metric: str) -> ClassValues | None:
    """Return the mean of trials' values by class; None if one lacks them or has other classes."""
    known = [record for record in records if record and metric in record["metrics"]]
    sizes = {(r["digest"], tuple(n for _, n in r["metrics"][metric])) for r in known}
    if len(known) < len(records) or len(sizes) != 1:
        return None
    ((digest, queries),) = sizes
    means = np.mean([[mean for mean, _ in r["metrics"][metric]] for r in known], axis=0)
    return ClassValues(digest, means, np.array(queries, np.float64))


def build_class_rule(
    values: Mapping[str, Mapping[int, ClassValues]], sample: Sample, baseline: str
) -> OverClasses | None:
    """Return the rule over classes and seeds for the rows of a sample.

    It is None if a run of a row or its baseline has no values, or values of other classes, and if
    no class has a query.
    """
    base, differences, first = values.get(baseline, {}), dict[str, Floats](), None
    for name in sample.rows:
        row, gaps = align_blocks(base, values.get(name, {})), []
        for seed in sample.list_common_blocks(name):
            if seed not in row or seed not in base:
                return None
            first = first or base[seed]
            if not all(side.has_classes_of(first) for side in (row[seed], base[seed])):
                return None
            gaps.append(row[seed].means - base[seed].means)
        if gaps:
            differences[name] = np.stack(gaps, 1)
    if first is None or not first.queries.any():
        return None
    has_queries = first.queries > 0
    by_row = {name: gaps[has_queries] for name, gaps in differences.items()}
    return OverClasses(by_row, first.queries[has_queries])
