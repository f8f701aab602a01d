"""Determine which cells of a sweep are known, given the results in the ledger.

A fixed study's cells are known once the studies it is centred on are complete. A search adds cells
by proposals (`Proposer`), a race by seeds (`Racing`). `Progression.list_new_cells` is called at the
start and after every finished trial and never waits. Plans, the engine and `--cell` share it.
"""

from ablate.ledger.facts import Facts
from ablate.plan.plan import Cell, Plan
from ablate.search.scheduling import STOP
from ablate.sweep.proposer import Proposer, fix_warm_trials
from ablate.sweep.races import Racing, Staging
from ablate.sweep.ranking import StudyRanking
from ablate.sweep.state import StudyState, SweepState


class Progression(SweepState):
    """The state of a plan's studies, which lists new cells as results arrive."""

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        """Create the parts that list cells: a race or proposer for each study that has one."""
        super().__init__(plan, facts, record=record)
        self.ranking = StudyRanking(self)
        self.races: dict[str, Racing] = {}
        self.proposers: dict[str, Proposer] = {}
        for name in plan.order:
            study = plan.spec.studies[name]
            if study.race is not None:
                self.races[name] = Racing(self, self.ranking, name, study.race)
            elif (precision := plan.find_precision(name)) is not None:
                self.races[name] = Staging(self, self.ranking, name, precision)
            if (sampled := study.sampling()) is not None:
                fix_warm_trials(plan, facts, name, record=record)
                self.proposers[name] = Proposer(self, self.ranking, name, sampled)

    def list_new_cells(self) -> list[Cell]:
        """Return the cells that have become known since the last call; mark complete studies."""
        fresh: list[Cell] = []
        for name in self.plan.order:
            state = self.studies[name]
            if state.complete or (state.blocked and not state.short):
                continue
            proposer = self.proposers.get(name)
            # ask until nothing is new: a search lists its neutral cell first, then a round
            while cells := proposer.propose_ready() if proposer else self._list_fixed_cells(state):
                fresh += cells
            all_listed = len(state.cells) == state.size or state.short
            state.complete = all_listed and not self._is_unfinished(state)
            if state.complete and self.record and name in self.scheduled_studies:
                self._record_final_stops(name)
        return fresh

    def record_looks(self) -> None:
        """Record the number of seeds of each complete study, whose verdicts can now be read."""
        for name, state in self.studies.items():
            if state.complete:
                seeds = len({cell.seed for cell in state.cells})
                self.facts.ledger.put_look(self.plan.sweep_id, name, seeds)

    def _record_final_stops(self, study: str) -> None:
        """Record which cells of a complete study were stopped, so that `ablate prune` knows it."""
        with self.facts.ledger.begin_transaction():
            for cell in self.studies[study].cells:
                if self.get_decision(cell) == STOP:
                    values = self.facts.list_epoch_values(cell.trial_id, self.plan.spec.objective)
                    self.facts.ledger.put_stop(self.plan.sweep_id, study, cell.cell, len(values))

    def _is_unfinished(self, state: StudyState) -> bool:
        """Return whether some cell of a study is neither done nor failed nor stopped.

        Since this runs after every trial, the cell that was unsettled last time is checked first.
        """
        if state.awaited is None or self.is_settled(state.awaited):
            unsettled = (cell for cell in reversed(state.cells) if not self.is_settled(cell))
            state.awaited = next(unsettled, None)
        return state.awaited is not None

    def _list_fixed_cells(self, state: StudyState) -> list[Cell]:
        """Return new cells of a study without sampler, once the settings they inherit are known."""
        race = self.races.get(state.name)
        if race is not None:
            fresh = race.list_new_cells(state)
            state.cells = sorted([*state.cells, *fresh], key=lambda cell: (cell.idx, cell.seed))
            return fresh
        fresh = []
        if len(state.cells) == state.size or state.short:
            return fresh
        for idx, point in enumerate(self.plan.spec.studies[state.name].all_points):
            if idx in state.listed:
                continue
            bases = self.ranking.resolve_inherited(state.name, point.levels)
            if bases is None:  # a study from which the point inherits settings is incomplete
                continue
            state.listed.add(idx)
            promoted = self.ranking.resolve_point(state.name, point)
            fresh += self.plan.build_cells(state.name, promoted, idx, bases)
        state.cells += fresh
        state.cells.sort(key=lambda cell: cell.idx)
        return fresh

    def mark_running(self, trial_id: str, *, running: bool) -> None:
        """Mark that a trial of this driver starts to run, or has ended or paused."""
        (self.running.add if running else self.running.discard)(trial_id)
        self.facts.version += 1

    def list_ready_cells(self) -> list[Cell]:
        """Return the cells that their scheduler lets train now, paused ones first."""
        cells = [
            cell
            for name in self.scheduled_studies
            for cell in self.studies[name].cells
            if cell.error is None and isinstance(self.get_decision(cell), int)
        ]
        return sorted(
            cells, key=lambda cell: not self.scheduled_studies[cell.study].is_paused(cell)
        )

    def list_open_searches(self) -> list[str]:
        """Return the asynchronous searches that can propose now."""
        return [name for name, proposer in self.proposers.items() if proposer.can_propose()]
