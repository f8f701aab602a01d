"""Successive halving and Hyperband: the best of a bracket go on to the next rung.

Decisions do not depend on the order in which results come. Source: Li et al., "Hyperband", JMLR
2018, Algorithm 1, of which successive halving is one bracket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ablate.schedulers import base
from ablate.schedulers.base import SCHEDULERS, STOP, WAIT, Decision, LearningCurve, SchedulerBase


class Halving(SchedulerBase):
    """What successive halving and Hyperband share: brackets, each halved by itself.

    factor: of the epochs of a rung to those of the one before; one of so many cells goes on.
    """

    factor: int = Field(3, ge=2)

    def list_bracket_rungs(self, epochs: int, bracket: int) -> list[int]:
        """Return the rungs of a bracket whose longest cell trains for `epochs`."""
        return base.list_rungs(self.grace, self.factor, epochs)

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        decisions: list[Decision] = [STOP] * len(entries)
        for bracket in sorted({entry.bracket for entry in entries}):
            places = [i for i, entry in enumerate(entries) if entry.bracket == bracket]
            halved = self._halve([entries[i] for i in places], bracket)
            for index, decision in zip(places, halved, strict=True):
                decisions[index] = decision
        return decisions

    def _halve(self, entries: Sequence[LearningCurve], bracket: int) -> list[Decision]:
        """Decide on one bracket; each cell has the rungs of its own length."""
        decisions: list[Decision] = [STOP] * len(entries)
        epochs = max(entry.epochs for entry in entries)
        alive = [i for i, entry in enumerate(entries) if not entry.failed]
        for rung in self.list_bracket_rungs(epochs, bracket):
            short = [i for i in alive if entries[i].epochs_trained < min(rung, entries[i].epochs)]
            for index in alive:
                decisions[index] = WAIT
            if short:
                for index in short:
                    decisions[index] = min(rung, entries[index].epochs)
                return decisions
            for index in alive:
                decisions[index] = STOP
            if rung >= epochs:
                return decisions
            alive = base.rank_places(entries, alive, rung)[: max(1, len(alive) // self.factor)]
        return decisions


@SCHEDULERS.register("successive_halving")
class SuccessiveHalving(Halving):
    """All cells of a bracket run to `grace` epochs, the best 1/`factor` go on to `factor` times
    as many, and so on to the last epoch. A bracket is a round of a search, or a whole grid.

    Example:
        >>> curves = [LearningCurve((value,), epochs=9) for value in (0.5, 0.3, 0.4)]
        >>> SuccessiveHalving().decide(curves, closed=True)
        [3, 'stop', 'stop']
    """

    name: Literal["successive_halving"] = "successive_halving"


@SCHEDULERS.register("hyperband")
class Hyperband(Halving):
    """Successive halving whose rounds take turns in how early they begin to stop cells: from
    `grace` epochs on, from factor · grace, …, and at last not at all.

    Example:
        >>> curves = [LearningCurve((value,), epochs=9, bracket=2) for value in (0.5, 0.3, 0.4)]
        >>> Hyperband().decide(curves, closed=True)
        [9, 9, 9]
    """

    name: Literal["hyperband"] = "hyperband"

    def list_bracket_rungs(self, epochs: int, bracket: int) -> list[int]:
        every = super().list_bracket_rungs(epochs, bracket)
        return every[bracket % len(every) :]
