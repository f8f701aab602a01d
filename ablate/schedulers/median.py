"""Median stopping: a cell whose best value is below the median of the others' means is ended.

Decides on what is known at the time, as its purpose is not to wait. Source: Golovin et al.,
"Google Vizier", KDD 2017, Section 3.2.2.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ablate.schedulers.base import SCHEDULERS, STOP, Decision, LearningCurve, SchedulerBase


@SCHEDULERS.register("median")
class Median(SchedulerBase):
    """A cell stops at epoch `grace` + i · `every` if its best value so far is below the median
    of the other cells' mean values up to that epoch; not before `least` others got there.

    every: epochs from one look to the next. least: other cells that must have come as far.

    Example:
        >>> curves = [LearningCurve((value,), epochs=3) for value in (0.5, 0.3, 0.4)]
        >>> Median(least=2).decide(curves, closed=True)
        [2, 'stop', 2]
    """

    name: Literal["median"] = "median"
    every: int = Field(1, ge=1)
    least: int = Field(3, ge=1)

    asynchronous: ClassVar[bool] = True
    keeps_stops: ClassVar[bool] = True

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        return [
            STOP if entry.failed or entry.stopped else self._decide_look(entries, index)
            for index, entry in enumerate(entries)
        ]

    def _decide_look(self, entries: Sequence[LearningCurve], index: int) -> Decision:
        """Return the epoch of the next look at a cell, or "stop"."""
        entry = entries[index]
        if entry.epochs_trained >= entry.epochs:
            return STOP
        looks = range(self.grace, entry.epochs, self.every)
        following = next((look for look in looks if look > entry.epochs_trained), entry.epochs)
        if entry.running or entry.epochs_trained not in looks:
            return following
        others = [
            other.mean_at(entry.epochs_trained)
            for i, other in enumerate(entries)
            if i != index and not other.failed and other.epochs_trained >= entry.epochs_trained
        ]
        if len(others) < self.least:
            return following
        return (
            STOP
            if entry.find_best_until(entry.epochs_trained) < statistics.median(others)
            else following
        )
