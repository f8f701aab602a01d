"""ASHA: successive halving that decides on the results known so far, without waiting."""

import itertools
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ablate.schedulers import base
from ablate.schedulers.base import SCHEDULERS, STOP, WAIT, Decision, LearningCurve, SchedulerBase


@SCHEDULERS.register("asha")
class Asha(SchedulerBase):
    """Promote a cell once it is among the best 1/`factor` of those that have reached its rung.

    factor: share of the cells that are promoted (one in `factor`), and ratio of the epochs of
        successive rungs.

    References:
        Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020,
        Algorithm 2, https://arxiv.org/abs/1810.05934.

    Example:
        >>> curves = [LearningCurve((value,), epochs=9) for value in (0.5, 0.3, 0.4)]
        >>> Asha().decide(curves, closed=True)
        [3, 'wait', 'wait']
    """

    name: Literal["asha"] = "asha"
    factor: int = Field(3, ge=2)

    asynchronous: ClassVar[bool] = True

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        """Return each cell's next epoch to train to, "wait", or "stop", by the results so far."""
        # train all cells to the first rung, an epoch at which cells are compared
        decisions: list[Decision] = [WAIT] * len(entries)
        epochs = max((entry.epochs for entry in entries), default=1)
        rungs = base.list_rungs(self.grace, self.factor, epochs)
        alive = [i for i, entry in enumerate(entries) if not entry.failed]
        idle = True  # whether no cell can train now
        for index in alive:
            goal = min(rungs[0], entries[index].epochs)
            if entries[index].epochs_trained < goal:
                decisions[index], idle = goal, False
        # promote the best cells of each rung
        for rung, next_rung in itertools.pairwise(rungs):
            reached = [
                i for i in alive if entries[i].epochs_trained >= min(rung, entries[i].epochs)
            ]
            best = base.rank_places(entries, reached, rung)[: len(reached) // self.factor]
            # Promotions are final: cells that have passed the rung, or run beyond it now, go on.
            passed = [i for i in reached if entries[i].epochs_trained > rung or entries[i].running]
            for index in dict.fromkeys([*best, *passed]):
                goal = min(next_rung, entries[index].epochs)
                if entries[index].epochs_trained < goal:
                    decisions[index], idle = goal, False
        # stop finished and failed cells
        for index, entry in enumerate(entries):
            if entry.failed or entry.epochs_trained >= entry.epochs:
                decisions[index] = STOP
        # if no cell can go on, train the best one to the end
        if closed and idle and alive:  # there were too few cells to fill the upper rungs
            farthest = max(entries[i].epochs_trained for i in alive)
            if not any(entries[i].epochs_trained >= entries[i].epochs for i in alive):
                top = [i for i in alive if entries[i].epochs_trained == farthest]
                first = base.rank_places(entries, top, farthest)[0]
                decisions[first] = entries[first].epochs
                return decisions
            return [STOP] * len(entries)  # some cell has trained to the end
        return decisions
