"""Stop worse cells early: successive halving, Hyperband, ASHA and median stopping.

Halving and Hyperband compare the cells of a bracket with each other, so their decisions do not
depend on the order of results. ASHA and median stopping decide on the results known so far.
"""

import itertools
import statistics
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ablate.search.scheduling import (
    SCHEDULERS,
    STOP,
    WAIT,
    Decision,
    LearningCurve,
    SchedulerBase,
    list_rungs,
    rank_places,
)


class Halving(SchedulerBase):
    """Base of schedulers that halve each bracket of cells by itself.

    factor: ratio of the epochs of successive rungs; one in `factor` cells goes on.
    """

    factor: int = Field(3, ge=2)

    def list_bracket_rungs(self, epochs: int, bracket: int) -> list[int]:
        """Return the epochs at which cells of a bracket are compared; the last one is `epochs`."""
        return list_rungs(self.grace, self.factor, epochs)

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        """Return each cell's decision. Only cells of one bracket are compared with each other.

        `closed` has no effect here, because a bracket decides as soon as its cells have results.
        """
        decisions: dict[int, Decision] = {}
        for bracket in {entry.bracket for entry in entries}:
            places = [i for i, entry in enumerate(entries) if entry.bracket == bracket]
            decisions |= self._halve(entries, places, bracket)
        return [decisions.get(i, STOP) for i in range(len(entries))]

    def _halve(
        self, entries: Sequence[LearningCurve], places: Sequence[int], bracket: int
    ) -> dict[int, Decision]:
        """Map the cells of a bracket that go on to the epoch of their next rung, or "wait"."""
        alive = [i for i in places if not entries[i].failed]
        for rung in self.list_bracket_rungs(max(entries[i].epochs for i in places), bracket):
            # train the remaining cells to the rung
            goals = {i: min(rung, entries[i].epochs) for i in alive}
            below = {i: goal for i, goal in goals.items() if entries[i].epochs_trained < goal}
            if below:
                return {i: below.get(i, WAIT) for i in alive}
            # keep the best cells, at least one
            alive = rank_places(entries, alive, rung)[: max(1, len(alive) // self.factor)]
        return {}


@SCHEDULERS.register("successive_halving")
class SuccessiveHalving(Halving):
    """Train a bracket to `grace` epochs, the best 1/`factor` to `factor` times as many, and so on.

    A bracket is a round of a search, or a whole grid.

    References:
        Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter
        optimization", AISTATS 2016, https://arxiv.org/abs/1502.07943; one bracket of Hyperband.

    Example:
        >>> curves = [LearningCurve((value,), epochs=9) for value in (0.5, 0.3, 0.4)]
        >>> SuccessiveHalving().decide(curves, closed=True)
        [3, 'stop', 'stop']
    """

    name: Literal["successive_halving"] = "successive_halving"


@SCHEDULERS.register("hyperband")
class Hyperband(Halving):
    """Halve rounds from different epochs on: `grace`, factor · grace, …, then not at all.

    References:
        Li et al., "Hyperband: a novel bandit-based approach to hyperparameter optimization", JMLR
        2018, Algorithm 1, https://arxiv.org/abs/1603.06560.

    Example:
        >>> curves = [LearningCurve((value,), epochs=9, bracket=2) for value in (0.5, 0.3, 0.4)]
        >>> Hyperband().decide(curves, closed=True)
        [9, 9, 9]
    """

    name: Literal["hyperband"] = "hyperband"

    def list_bracket_rungs(self, epochs: int, bracket: int) -> list[int]:
        rungs = super().list_bracket_rungs(epochs, bracket)
        return rungs[bracket % len(rungs) :]


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
        rungs = list_rungs(self.grace, self.factor, max((e.epochs for e in entries), default=1))
        alive = [i for i, entry in enumerate(entries) if not entry.failed]
        goals = dict.fromkeys(alive, rungs[0])
        # promote the best cells of each rung
        for rung, next_rung in itertools.pairwise(rungs):
            reached = [
                i for i in alive if entries[i].epochs_trained >= min(rung, entries[i].epochs)
            ]
            best = rank_places(entries, reached, rung)[: len(reached) // self.factor]
            # Promotions are final: cells that have passed the rung, or run beyond it now, go on.
            passed = [i for i in reached if entries[i].epochs_trained > rung or entries[i].running]
            goals |= dict.fromkeys([*best, *passed], next_rung)
        # stop finished and failed cells
        decisions: list[Decision] = []
        for index, entry in enumerate(entries):
            goal = min(goals.get(index, 0), entry.epochs)
            is_over = entry.failed or entry.epochs_trained >= entry.epochs
            decisions.append(STOP if is_over else goal if entry.epochs_trained < goal else WAIT)
        idle = not any(isinstance(decision, int) for decision in decisions)
        # if no cell can go on, train the best one to the end
        if closed and idle and alive:  # there were too few cells to fill the upper rungs
            farthest = max(entries[i].epochs_trained for i in alive)
            if not any(entries[i].epochs_trained >= entries[i].epochs for i in alive):
                top = [i for i in alive if entries[i].epochs_trained == farthest]
                first = rank_places(entries, top, farthest)[0]
                decisions[first] = entries[first].epochs
                return decisions
            return [STOP] * len(entries)  # some cell has trained to the end
        return decisions


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
