"""Successive halving and Hyperband, whose decisions do not depend on the order of results."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ablate.schedulers import base
from ablate.schedulers.base import SCHEDULERS, STOP, WAIT, Decision, LearningCurve, SchedulerBase


class Halving(SchedulerBase):
    """Base of schedulers that halve each bracket of cells by itself.

    factor: ratio of the epochs of successive rungs; one in `factor` cells goes on.
    """

    factor: int = Field(3, ge=2)

    def list_bracket_rungs(self, epochs: int, bracket: int) -> list[int]:
        """Return the epochs at which cells of a bracket are compared; the last one is `epochs`."""
        return base.list_rungs(self.grace, self.factor, epochs)

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        """Return each cell's decision. Only cells of one bracket are compared with each other.

        `closed` has no effect here, because a bracket decides as soon as its cells have results.
        """
        decisions: list[Decision] = [STOP] * len(entries)
        for bracket in sorted({entry.bracket for entry in entries}):
            places = [i for i, entry in enumerate(entries) if entry.bracket == bracket]
            halved = self._halve([entries[i] for i in places], bracket)
            for index, decision in zip(places, halved, strict=True):
                decisions[index] = decision
        return decisions

    def _halve(self, entries: Sequence[LearningCurve], bracket: int) -> list[Decision]:
        """Decide for the cells of one bracket: the epoch of the next rung, "wait", or "stop"."""
        decisions: list[Decision] = [STOP] * len(entries)
        epochs = max(entry.epochs for entry in entries)
        alive = [i for i, entry in enumerate(entries) if not entry.failed]
        for rung in self.list_bracket_rungs(epochs, bracket):
            # train the remaining cells to the rung
            below = [i for i in alive if entries[i].epochs_trained < min(rung, entries[i].epochs)]
            for index in alive:
                decisions[index] = WAIT if below else STOP
            if below:
                for index in below:
                    decisions[index] = min(rung, entries[index].epochs)
                return decisions
            if rung >= epochs:
                return decisions
            # keep the best cells, at least one
            alive = base.rank_places(entries, alive, rung)[: max(1, len(alive) // self.factor)]
        return decisions


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
