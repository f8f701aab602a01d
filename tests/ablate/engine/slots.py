"""Trials in slots, as an engine runs them: when each was claimed, began to train and ended."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from tests.ablate.synthetic import FINAL


@dataclass(frozen=True)
class Ran:
    """Times in seconds from the sweep's beginning."""

    started: float
    ended: float
    seconds: float


def ran(
    seconds: Sequence[float], slots: int, *, start: float, worker: float, setup: float
) -> list[Ran]:
    """Each trial takes the slot that is free first, and was claimed when the one two before it
    began (drivers claim ahead).

    start: until the first can be claimed. worker: until a slot's first trial can be built.
    """
    free = [start + worker] * slots
    heapify(free)
    taken: list[float] = []
    trials = []
    for number, long in enumerate(seconds):
        at = heappop(free)
        claimed = start if number < slots + 2 else taken[number - 2]
        taken.append(at)
        ended = at + setup + long
        trials.append(Ran(max(start, claimed), ended, long))
        heappush(free, ended)
    return trials


def write(ledger: Ledger, config: dict[str, Any], trials: Sequence[Ran], created: float) -> None:
    """A sweep of these trials, all of one configuration and a seed each, into the ledger."""
    sweep = f"{int(created):012d}"
    ledger.put_sweep(sweep, "slots", {}, {})
    for seed, trial in enumerate(trials):
        name = f"{sweep}-s{seed}"
        ledger.put_cells(
            sweep,
            [{"study": "s", "cell": "c", "seed": seed, "trial_id": name, "coords": {}, "idx": 0}],
        )
        ledger.claim(name, "0" * 64, seed, config, Owner.me())
        ledger.record_final(name, {**FINAL, "epochs": 10, "seconds": trial.seconds})
        with ledger.write() as db:
            db.execute(
                "UPDATE trials SET started=?, ended=? WHERE trial_id=?",
                [created + trial.started, created + trial.ended, name],
            )
    with ledger.write() as db:
        db.execute("UPDATE sweeps SET created=? WHERE sweep_id=?", [created, sweep])


def lengths(count: int, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [draw.uniform(18, 22) for _ in range(count)]
