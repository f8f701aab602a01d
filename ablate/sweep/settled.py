"""Which cells have nothing left to do, and how far the others are to train."""

from __future__ import annotations

from collections.abc import Mapping

from ablate.plan.cell import Cell
from ablate.schedulers.base import STOP, Decision
from ablate.sweep.ensembles import Ensembles
from ablate.sweep.legs import Legs
from ablate.sweep.state import SweepState


class Settled:
    """Answers for one cell at a time, from facts and schedulers.

    Args:
        legs: of the studies that have a scheduler.
    """

    def __init__(self, state: SweepState, legs: Mapping[str, Legs], ensembles: Ensembles) -> None:
        self._state, self._legs, self._ensembles = state, legs, ensembles

    def settled(self, cell: Cell) -> bool:
        """Whether nothing remains to be done for a cell: done, failed, or stopped."""
        fact = self._state.facts[cell.trial_id]
        if cell.error is not None or fact.settles(self._ensembles.wanted(cell), cell.metrics):
            return True
        return self.until(cell) == STOP

    def until(self, cell: Cell) -> Decision | None:
        """How far a cell is to train now; None: to its end, without a pause."""
        legs = self._legs.get(cell.study)
        if legs is None or self._state.facts[cell.trial_id].status in ("done", "failed"):
            return None  # what a finished one may lack is an evaluation
        return legs.decision(cell)

    def known(self, cell: Cell) -> bool:
        """Whether a cell says all that the next round waits for: its result, or under an
        asynchronous scheduler how it stood at a first pause."""
        if self.settled(cell):
            return True
        legs = self._legs.get(cell.study)
        return legs is not None and legs.scheduler.asynchronous and legs.paused(cell)

    def reports(self, cell: Cell) -> Mapping[int, float] | None:
        """Best value so far by epoch of a cell under a scheduler; None without one."""
        legs = self._legs.get(cell.study)
        return None if legs is None else legs.reports(cell.idx)

    def leg(self, trial_id: str, *, begins: bool) -> None:
        """A trial of this driver begins to run, or has ended, if only for now."""
        running = self._state.running
        (running.add if begins else running.discard)(trial_id)
        self._state.facts.version += 1
