"""Which trials' weights are worth their place: the best of each study, and all that may be read
once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.ledger import queries
from ablate.ledger.best import best_cell, cells_by_study, objectives
from ablate.ledger.records import Records

SETTLED = ("done", "failed")


def best_trials(records: Records) -> set[str]:
    """Of each study of each sweep the trials, at all seeds and folds, of the cell with the best
    mean of each of its objectives; the earlier one on a tie. Reports name their weights."""
    found: set[str] = set()
    for sweep in queries.sweeps(records):
        spec = records.sweep(sweep["sweep_id"])["spec"]
        for study, cells in cells_by_study(records, sweep["sweep_id"]).items():
            for metric, most in objectives(spec, study):
                cell = best_cell(records, cells, metric, most=most)
                found |= {row["trial_id"] for row in cells[cell]} if cell else set()
    return found


def unfinished(records: Records) -> dict[str, str]:
    """Sweep → name, of those with a cell that has no result yet: they go on, and may read what is
    trained once more, on other splits or as an ensemble."""
    return {
        sweep["sweep_id"]: sweep["name"]
        for sweep in queries.sweeps(records)
        if any(row["done"] + row["failed"] < row["size"] for row in _progress(records, sweep))
    }


def _progress(records: Records, sweep: Mapping[str, Any]) -> list[dict[str, Any]]:
    return queries.progress(records, sweep["sweep_id"])
