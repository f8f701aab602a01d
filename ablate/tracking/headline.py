"""What a sweep's parent run shows: the best of each study so far, a point for each of its cells.

A pure function of the ledger, as all that MLflow gets: a cell counts once it and all before it
have ended, so that what has been written is not told otherwise later. (A failed trial that is run
again, one paused at a rung when the sweep was stopped, or more seeds, add points of a later time,
which MLflow shows; a store that is written anew has these alone.)
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablate.ledger.ledger import Ledger
from ablate.tracking import payload
from trainables.evaluation.metric_name import MetricName

ENDED = {*payload.STATUS} - {"interrupted"}  # that one goes on, and has ended later

Point = tuple[str, float, int, int]  # key, value, time in ms, step: `MlflowClient.log_batch`'s


def headlines(ledger: Ledger, sweep: payload.Row) -> Iterator[Point]:
    """`best <metric>/<study>` at the number of each cell in its study: the best of the means over
    seeds and folds, of this cell and those before it, by the study's first objective."""
    spec = sweep["spec"]
    found = itertools.groupby(ledger.cells(sweep["sweep_id"]), key=lambda cell: cell["study"])
    for study, cells in found:
        metric, maximised = _objective(spec, study)
        key = f"best {metric.replace('/', ' ')}/{_plain(study)}"  # a section of charts in MLflow
        best, at = -math.inf, 0
        for number, repeats in itertools.groupby(cells, key=lambda cell: cell["idx"]):
            trials = [ledger.trial(cell["trial_id"]) for cell in repeats]
            if any(trial is None or trial["status"] not in ENDED for trial in trials):
                break
            ended = [trial["ended"] or trial["created"] for trial in trials if trial is not None]
            at = max(at, *map(payload.milliseconds, ended))
            mean = _mean(ledger, [trial for trial in trials if trial is not None], metric)
            if mean is not None:
                best = max(best, mean if maximised else -mean)
            if best > -math.inf:
                yield key, best if maximised else -best, at, number


def _objective(spec: Mapping[str, Any], study: str) -> tuple[str, bool]:
    """The metric that a study's cells are compared by, and whether more of it is better."""
    own: Sequence[Mapping[str, Any]] = (spec.get("studies") or {}).get(study, {}).get(
        "objectives"
    ) or [{"metric": spec.get("objective", "val/map_at_r")}]
    return str(own[0]["metric"]), own[0].get("direction", "maximize") == "maximize"


def _mean(ledger: Ledger, trials: Sequence[payload.Row], metric: str) -> float | None:
    """Over trials that all have it."""
    split, name = MetricName.parse(metric)
    values = []
    for trial in trials:
        value = ledger.evaluations(trial["trial_id"]).get(split, {}).get(name)
        if trial["status"] != "done" or value is None or not math.isfinite(value):
            return None
        values.append(float(value))
    return math.fsum(values) / len(values)


def _plain(study: str) -> str:
    """A study's name as part of a metric's, which takes no punctuation; told apart by a digest."""
    name = re.sub(r"[^\w\- ]", "_", study)
    return name if name == study else f"{name}-{hashlib.sha256(study.encode()).hexdigest()[:4]}"
