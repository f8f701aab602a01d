"""How a sweep unfolds: which cells are known, given the facts of the ledger.

A fixed study's cells are known once the studies it is centred on are complete; a search's, round
by round. `Progression.advance` is called at the start and after every finished trial; it reads
facts and decides, and never waits. The plan's printout, the engine and `--cell` share it.
"""

from __future__ import annotations

from ablate.ledger.facts import Facts
from ablate.plan.cell import Cell
from ablate.plan.plan import Plan
from ablate.schedulers.base import Decision
from ablate.sweep.ensembles import Ensembles
from ablate.sweep.legs import Legs
from ablate.sweep.proposals import Proposer
from ablate.sweep.ranking import Ranking
from ablate.sweep.repeats import Racing
from ablate.sweep.settled import Settled
from ablate.sweep.state import StudyState, SweepState


class Progression:
    """The studies of a plan, and the cells known of them.

    Args:
        record: write proposals to the ledger (the engine), or only compute them (a plan).

    Attributes:
        studies: how far each of those asked for is. ranking: how complete ones compare.
    """

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        self.plan, self.facts = plan, facts
        self._sweep = state = SweepState(plan, facts, record=record)
        self.studies = state.studies
        designs = {name: plan.spec.studies[name] for name in plan.order}  # those asked for
        self.legs = {
            name: Legs(state, name, scheduler)
            for name, study in designs.items()
            if (scheduler := study.halting()) is not None
        }
        self.ensembles = Ensembles(state)
        self._settled = Settled(state, self.legs, self.ensembles)
        self.ranking = Ranking(state)
        parts = state, self._settled, self.ranking
        self.races = {
            name: Racing(*parts, name, study.race)
            for name, study in designs.items()
            if study.race is not None
        }
        self.proposers = {
            name: Proposer(*parts, name, sampled)
            for name, study in designs.items()
            if (sampled := study.sampling()) is not None
        }

    def advance(self) -> list[Cell]:
        """Cells that have become known since the last call, in order."""
        fresh: list[Cell] = []
        for name in self.plan.order:
            state = self.studies[name]
            if state.complete or (state.blocked and not state.short):
                continue
            proposer = self.proposers.get(name)
            while cells := proposer.ready() if proposer else self._fixed(state):
                fresh += cells
            listed = len(state.cells) == state.size or state.short
            state.complete = listed and not self._awaits(state)
        return fresh

    def _awaits(self, state: StudyState) -> bool:
        """Whether any cell is left to do. Asked after every trial: one that is left answers for
        all, and the last of them is left for longest."""
        if state.awaited is None or self.settled(state.awaited):
            left = (cell for cell in reversed(state.cells) if not self.settled(cell))
            state.awaited = next(left, None)
        return state.awaited is not None

    def _fixed(self, state: StudyState) -> list[Cell]:
        """Cells of a fixed design whose centres have become known."""
        race = self.races.get(state.name)
        if race is not None:
            fresh = race.fresh(state)
            state.cells = sorted([*state.cells, *fresh], key=lambda cell: (cell.idx, cell.seed))
            return fresh
        fresh = []
        if len(state.cells) == state.size or state.short:  # asked after every trial
            return fresh
        for idx, point in enumerate(self.plan.spec.studies[state.name].listed):
            if idx in state.listed:
                continue
            taken = self.ranking.taken(state.name, point.arm)
            if taken is None:
                continue
            state.listed.add(idx)
            promoted = self.ranking.promoted(state.name, point)
            fresh += self.plan.cells(state.name, promoted, idx, taken)
        state.cells += fresh
        state.cells.sort(key=lambda cell: cell.idx)
        return fresh

    # --------------------------------------------------------------- one cell

    def settled(self, cell: Cell) -> bool:
        """Whether nothing remains to be done for a cell: done, failed, or stopped."""
        return self._settled.settled(cell)

    def until(self, cell: Cell) -> Decision | None:
        """How far a cell is to train now; None: to its end, without a pause."""
        return self._settled.until(cell)

    def leg(self, trial_id: str, *, begins: bool) -> None:
        """A trial of this driver begins to run, or has ended, if only for now."""
        self._settled.leg(trial_id, begins=begins)

    # ----------------------------------------------------------- what is next

    def ready(self) -> list[Cell]:
        """Known cells of scheduled studies that may train now, those on their way first."""
        cells = [
            cell
            for name in self.legs
            for cell in self.studies[name].cells
            if cell.error is None and isinstance(self.until(cell), int)
        ]
        return sorted(cells, key=lambda cell: not self.legs[cell.study].paused(cell))

    def searching(self) -> list[str]:
        """The asynchronous searches that may still propose."""
        return [name for name, proposer in self.proposers.items() if proposer.wanting()]

    def demand(self, name: str) -> list[Cell]:
        """One more proposal of one of them, for a free worker, from what is known now."""
        return self.proposers[name].demand()
