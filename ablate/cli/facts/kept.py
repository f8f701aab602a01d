"""Which trials' weights are worth their place: the best of each study, and all that may be read
once more."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from ablate.ledger import queries
from ablate.ledger.records import Records
from trainables.evaluation.metric_name import MetricName

SETTLED = ("done", "failed")


def best_trials(records: Records) -> set[str]:
    """Of each study of each sweep the trials, at all seeds and folds, of the cell with the best
    mean of each of its objectives; the earlier one on a tie. Reports name their weights."""
    found: set[str] = set()
    for sweep in queries.sweeps(records):
        spec = records.sweep(sweep["sweep_id"])["spec"]
        cells: dict[str, dict[str, list[str]]] = {}  # study → cell → trials, in their order
        for row in records.cells(sweep["sweep_id"]):
            of_study = cells.setdefault(row["study"], {})
            of_study.setdefault(row["cell"], []).append(row["trial_id"])
        for study, of_study in cells.items():
            for metric, most in _objectives(spec, study):
                found |= set(_best(records, of_study, metric, most=most))
    return found


def _objectives(spec: Mapping[str, Any], study: str) -> Iterator[tuple[str, bool]]:
    """Metric, and whether more of it is better."""
    own = (spec["studies"].get(study) or {}).get("objectives")
    for each in own or [{"metric": spec["objective"], "direction": "maximize"}]:
        yield each["metric"], each["direction"] == "maximize"


def _best(
    records: Records, cells: Mapping[str, list[str]], metric: str, *, most: bool
) -> list[str]:
    split, name = MetricName.parse(metric)
    chosen: tuple[float, list[str]] | None = None
    for trials in cells.values():
        values = [records.evaluations(trial).get(split, {}).get(name) for trial in trials]
        known = [value for value in values if value is not None]
        if not known:
            continue
        mean = statistics.fmean(known) * (1 if most else -1)
        if chosen is None or mean > chosen[0]:
            chosen = mean, trials
    return [] if chosen is None else chosen[1]


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
