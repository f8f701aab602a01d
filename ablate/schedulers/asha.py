"""ASHA: successive halving without waiting, decided on what is known at the time.

Source: Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, Algorithm 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ablate.schedulers import base
from ablate.schedulers.base import SCHEDULERS, STOP, WAIT, Decision, LearningCurve, SchedulerBase


@SCHEDULERS.register("asha")
class Asha(SchedulerBase):
    """Asynchronous successive halving: a cell goes on as soon as it is among the best
    1/`factor` of those that have reached its rung so far.

    factor: also of the epochs of a rung to those of the one before.

    Example:
        >>> curves = [LearningCurve((value,), epochs=9) for value in (0.5, 0.3, 0.4)]
        >>> Asha().decide(curves, closed=True)
        [3, 'wait', 'wait']
    """

    name: Literal["asha"] = "asha"
    factor: int = Field(3, ge=2)

    asynchronous: ClassVar[bool] = True

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        decisions: list[Decision] = [WAIT] * len(entries)
        epochs = max((entry.epochs for entry in entries), default=1)
        steps = base.list_rungs(self.grace, self.factor, epochs)
        alive = [i for i, entry in enumerate(entries) if not entry.failed]
        idle = True
        for index in alive:
            goal = min(steps[0], entries[index].epochs)
            if entries[index].epochs_trained < goal:
                decisions[index], idle = goal, False
        for rung, following in itertools.pairwise(steps):
            there = [i for i in alive if entries[i].epochs_trained >= min(rung, entries[i].epochs)]
            best = base.rank_places(entries, there, rung)[: len(there) // self.factor]
            # Promoted once is promoted for good: whoever has passed the rung, or is on its way.
            passed = [i for i in there if entries[i].epochs_trained > rung or entries[i].running]
            for index in dict.fromkeys([*best, *passed]):
                goal = min(following, entries[index].epochs)
                if entries[index].epochs_trained < goal:
                    decisions[index], idle = goal, False
        for index, entry in enumerate(entries):
            if entry.failed or entry.epochs_trained >= entry.epochs:
                decisions[index] = STOP
        if closed and idle and alive:
            # Too few to fill the upper rungs: the best of those that got farthest goes to the end.
            farthest = max(entries[i].epochs_trained for i in alive)
            if not any(entries[i].epochs_trained >= entries[i].epochs for i in alive):
                top = [i for i in alive if entries[i].epochs_trained == farthest]
                first = base.rank_places(entries, top, farthest)[0]
                decisions[first] = entries[first].epochs
                return decisions
            return [STOP] * len(entries)
        return decisions
