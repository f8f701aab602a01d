"""What MLflow should hold of a ledger, written down a second time, so that the tracker can be
compared with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ablate.ledger.ledger import Ledger

Point = tuple[str, str, float, int, int]  # trial ("": the sweep), key, value, time in ms, step


def list_expected_points(ledger: Ledger) -> Counter[Point]:
    """The points that MLflow should have: a function of the ledger, each once."""
    points: Counter[Point] = Counter()
    points.update(best_so_far(ledger))
    for trial in ledger.query("SELECT * FROM trials"):
        name, step = trial["trial_id"], trial["best_epoch"]
        created, ended = round(1000 * trial["created"]), round(1000 * trial["ended"])
        for row in ledger.list_epochs(name):
            at = created + round(1000 * row["seconds"])
            points.update(
                (name, key, value, at, row["epoch"])
                for key, value in row["metrics"].items()
                if value is not None
            )
        recorded = ledger.get_recorded_times(name)
        for split, metrics in ledger.get_evaluations(name).items():
            at = round(1000 * recorded[split])
            points.update(
                (name, f"final/{split}/{key}", value, at, step)
                for key, value in metrics.items()
                if value is not None
            )
        points.update(
            (name, f"final/{key}", float(trial[key]), ended, step)
            for key in ("best_epoch", "epochs", "steps", "seconds")
        )
    return points


def best_so_far(ledger: Ledger) -> Iterator[Point]:
    """The sweep's own run: after each cell, the best mean of its study's objective so far."""
    (sweep,) = ledger.query("SELECT sweep_id FROM sweeps")
    seeds: dict[tuple[str, int], list[str]] = {}
    for cell in ledger.list_cells(sweep["sweep_id"]):
        seeds.setdefault((cell["study"], cell["idx"]), []).append(cell["trial_id"])
    for study, number in seeds:
        means, ends = [], []
        for index in range(number + 1):
            trials = [ledger.get_trial(name) for name in seeds[study, index]]
            values = [ledger.get_evaluations(t["trial_id"])["val"]["map_at_r"] for t in trials]
            means.append(math.fsum(values) / len(values))
            ends += [round(1000 * t["ended"]) for t in trials]
        yield "", f"best val map_at_r/{study}", max(means), max(ends), number
