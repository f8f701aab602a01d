"""Median stopping: stop a cell whose best value is below the median of the others' means."""

import statistics
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ablate.schedulers.base import SCHEDULERS, STOP, Decision, LearningCurve, SchedulerBase


@SCHEDULERS.register("median")
class Median(SchedulerBase):
    """Stop a cell whose best value so far is below the median of the other cells' mean values.

    Cells are checked at epochs `grace` + i · `every`, on the results known at that time.

    every: number of epochs between checks.
    least: number of other cells that must have reached the epoch.

    References:
        Golovin et al., "Google Vizier: a service for black-box optimization", KDD 2017,
        Section 3.2.2.

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
            STOP if entry.failed or entry.stopped else self._check_cell(entries, index)
            for index, entry in enumerate(entries)
        ]

    def _check_cell(self, entries: Sequence[LearningCurve], index: int) -> Decision:
        """Return "stop" if a cell is below the median at its check, else the next check's epoch."""
        entry = entries[index]
        if entry.epochs_trained >= entry.epochs:
            return STOP
        # train to the next epoch at which cells are checked
        checks = range(self.grace, entry.epochs, self.every)
        next_check = next((epoch for epoch in checks if epoch > entry.epochs_trained), entry.epochs)
        if entry.running or entry.epochs_trained not in checks:
            return next_check
        # compare the best value so far with the other cells' means up to the same epoch
        others = [
            statistics.fmean(other.values[: entry.epochs_trained])
            for i, other in enumerate(entries)
            if i != index and not other.failed and other.epochs_trained >= entry.epochs_trained
        ]
        if len(others) < self.least:
            return next_check
        best = entry.find_best_until(entry.epochs_trained)
        return STOP if best < statistics.median(others) else next_check
