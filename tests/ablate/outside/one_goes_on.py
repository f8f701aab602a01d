"""A scheduler of another package: all cells train to `grace`, then the best alone goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ablate.search.scheduling import (
    SCHEDULERS,
    STOP,
    WAIT,
    Decision,
    LearningCurve,
    SchedulerBase,
    rank_places,
)


@SCHEDULERS.register("one_goes_on")
class OneGoesOn(SchedulerBase):
    name: Literal["one_goes_on"] = "one_goes_on"

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        alive = [i for i, entry in enumerate(entries) if not entry.failed]
        short = [i for i in alive if entries[i].epochs_trained < self.grace]
        if short:
            return [
                self.grace if i in short else WAIT if i in alive else STOP
                for i in range(len(entries))
            ]
        best = rank_places(entries, alive, self.grace)[:1]
        return [
            entry.epochs if i in best and entry.epochs_trained < entry.epochs else STOP
            for i, entry in enumerate(entries)
        ]
