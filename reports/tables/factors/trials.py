"""The trials of a search: what was proposed, and what it gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.stats.describe import Summary, summary
from reports.tables.beside import NEUTRAL
from reports.tables.cells import by_cell
from reports.tables.labels import lower_is_better


@dataclass(frozen=True)
class Trial:
    """number: from 1, in the order of the proposals. result: over its seeds, as in the runs."""

    number: int
    cell: str
    coords: Mapping[str, Any]
    result: Summary


@dataclass(frozen=True)
class Trials:
    """trials: the finished ones. lost: numbers of those without a result. neutral: the method
    switched off, which is no draw from the space and has no number; None where there is none."""

    trials: tuple[Trial, ...]
    lost: tuple[int, ...]
    neutral: Summary | None

    def best(self, metric: str) -> Trial | None:
        """The first of the best of them."""
        sign = -1 if lower_is_better(metric) else 1
        return max(self.trials, key=lambda each: sign * each.result.mean, default=None)


def trials_of(cells: pd.DataFrame, metric: str) -> Trials:
    """Of the cells of one search."""
    found: list[Trial] = []
    lost: list[int] = []
    neutral = None
    number = 0
    cells = cells.sort_values("idx", kind="stable")
    first = cells.drop_duplicates("cell")
    at = dict(zip(map(str, first["cell"]), first["coords"], strict=True))
    for cell, values in by_cell(cells, metric).items():
        result = summary(list(values.values()))
        coords: Mapping[str, Any] = at[cell]
        if NEUTRAL in coords or cell == NEUTRAL:
            neutral = result
            continue
        number += 1
        if result is None:
            lost.append(number)
        else:
            found.append(Trial(number, cell, coords, result))
    return Trials(tuple(found), tuple(lost), neutral)
