"""Track the state of a sweep: listed cells, results, and how far each cell should train."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ablate.designs.base import ENSEMBLE
from ablate.ledger.facts import Facts
from ablate.plan.plan import Cell, Plan
from ablate.schedulers.base import STOP, WAIT, Decision, LearningCurve, SchedulerBase
from trainables.core.trial_folder import locate_trial_folder
from trainables.jobs.request import Fold
from trainables.machine.files import join_inside


@dataclass
class StudyState:
    """The state of one study."""

    name: str
    size: int
    cells: list[Cell] = field(default_factory=list)
    listed: set[int] = field(default_factory=set)
    awaited: Cell | None = None  # one that was not settled when last looked at
    complete: bool = False  # nothing of it remains to be done
    blocked: str | None = None  # why it can go no further
    short: bool = False  # complete with fewer cells than planned, as `blocked` says
    dropped: dict[int, int] = field(default_factory=dict)  # ended by a race → seeds that it got
    _folds: tuple[int, dict[tuple[int, int], list[Cell]]] = (0, {})  # of so many cells

    def group_by_index(self) -> dict[int, list[Cell]]:
        """Return the cells by index; a group has all seeds and folds of one cell."""
        groups: dict[int, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.idx, []).append(cell)
        return dict(sorted(groups.items()))

    def folds(self, cell: Cell) -> list[Cell]:
        """Return the cells of all folds with the cell and seed of this one."""
        count, groups = self._folds
        if count != len(self.cells):
            groups = {}
            for other in self.cells:
                groups.setdefault((other.idx, other.seed), []).append(other)
            self._folds = len(self.cells), groups
        return groups.get((cell.idx, cell.seed), [cell])


class SweepState:
    """Plan, results and studies, shared by all parts of a sweep.

    With `evaluate: [ensemble]` the trial of fold 0 is evaluated again when all folds of its cell
    and seed are done, with the embeddings of all folds concatenated
    (`trainables/jobs/ensemble.py`). If a fold has failed, there is no ensemble.

    Args:
        record: whether to write proposals and stops to the ledger, as the engine does and a plan
            does not.

    Attributes:
        studies: the selected studies by name.
        running: trials that this driver runs.
        legs: the studies with a scheduler.
    """

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        self.plan, self.facts, self.record = plan, facts, record
        self.studies = {name: StudyState(name, plan.count_cells(name)) for name in plan.order}
        self.running: set[str] = set()
        self.legs = {
            name: ScheduledStudy(self, name, scheduler)
            for name in plan.order
            if (scheduler := plan.spec.studies[name].get_scheduler()) is not None
        }

    def has_failed(self, cell: Cell) -> bool:
        return cell.error is not None or self.facts[cell.trial_id].status == "failed"

    def is_settled(self, cell: Cell) -> bool:
        """Return whether nothing is left to do for a cell: it is done, failed or stopped."""
        fact = self.facts[cell.trial_id]
        if cell.error is not None or fact.is_settled(self.list_readable_splits(cell), cell.metrics):
            return True
        return self.get_target_epoch(cell) == STOP

    def get_target_epoch(self, cell: Cell) -> Decision | None:
        """Return the epoch to which a cell should train now; None for its end."""
        legs = self.legs.get(cell.study)
        if legs is None or self.facts[cell.trial_id].status in ("done", "failed"):
            return None  # what a finished one may lack is an evaluation
        return legs.get_decision(cell)

    def is_known(self, cell: Cell) -> bool:
        """Return whether the next round can use a cell: it has its result or, under an asynchronous
        scheduler, has reached its first rung.
        """
        if self.is_settled(cell):
            return True
        legs = self.legs.get(cell.study)
        return legs is not None and legs.scheduler.asynchronous and legs.is_paused(cell)

    def list_readable_splits(self, cell: Cell) -> tuple[str, ...]:
        """Return the splits on which a cell can be evaluated, without an impossible ensemble."""
        if ENSEMBLE not in cell.evaluate:
            return cell.evaluate
        lost = any(map(self.has_failed, self.studies[cell.study].folds(cell)))
        return tuple(split for split in cell.evaluate if split != ENSEMBLE or not lost)

    def list_ensemble_cells(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells whose ensembles contain these cells."""
        return [
            fold
            for cell in cells
            if cell.fold is not None
            for fold in self.studies[cell.study].folds(cell)
            if ENSEMBLE in fold.evaluate
        ]

    def list_ensemble_members(self, cells: Iterable[Cell], trials: Path) -> tuple[Fold, ...] | None:
        """Return the members of a trial's ensemble for its job; None if a fold is missing."""
        first = next((cell for cell in cells if ENSEMBLE in cell.evaluate), None)
        folds = [] if first is None else self.studies[first.study].folds(first)
        if not folds or any(self.facts[fold.trial_id].status != "done" for fold in folds):
            return None
        rows = [self.facts.ledger.get_trial(fold.trial_id) or {} for fold in folds]
        return tuple(
            Fold(
                fold.config,
                fold.seed,
                join_inside(locate_trial_folder(trials, fold.trial_id), row["export"]),
            )
            for fold, row in zip(folds, rows, strict=True)
        )


class ScheduledStudy:
    """Apply a scheduler to a study: decide how far each cell trains.

    All seeds of a cell run to the same rung, and its value is their mean.
    """

    def __init__(self, state: SweepState, name: str, scheduler: SchedulerBase) -> None:
        self._sweep, self.name, self.scheduler = state, name, scheduler
        self._state = state.studies[name]
        self._objective = state.plan.spec.objective
        # cells are compared within rounds of a search, else all of them
        sampled = state.plan.spec.studies[name].sampling()
        size = sampled.round if sampled is not None else None
        self._bracket = size if isinstance(size, int) else state.plan.count_cells(name)
        self._decisions: dict[int, Decision] = {}
        self._version: object = None  # of facts and cells by which it decided

    def get_decision(self, cell: Cell) -> Decision:
        """Return the epoch to run to, "wait" (also while other seeds are behind), or "stop"."""
        decision = self._run_scheduler()[cell.idx]
        if isinstance(decision, int) and decision < cell.config["training"]["epochs"]:
            reached = len(self._sweep.facts.list_epoch_values(cell.trial_id, self._objective))
            return WAIT if reached >= decision else decision
        return decision

    def is_paused(self, cell: Cell) -> bool:
        """Return whether a cell has reached a rung and none of its trials is running."""
        values = self._sweep.facts.list_epoch_values(cell.trial_id, self._objective)
        return bool(values) and cell.trial_id not in self._sweep.running

    def list_best_by_epoch(self, idx: int) -> dict[int, float]:
        """Return the best value up to each epoch, for samplers that learn from stopped cells."""
        entry = self._build_learning_curve([cell for cell in self._state.cells if cell.idx == idx])
        return {epoch: entry.find_best_until(epoch) for epoch in range(1, entry.epochs_trained + 1)}

    def _run_scheduler(self) -> dict[int, Decision]:
        count = len(self._state.cells)
        version = self._sweep.facts.version, count
        if version != self._version:
            cells = self._state.group_by_index()
            entries = [self._build_learning_curve(group) for group in cells.values()]
            decisions = self.scheduler.decide(entries, closed=count == self._state.size)
            self._decisions = dict(zip(cells, decisions, strict=True))
            self._version = version
            if self.scheduler.keeps_stops:
                self._record_stops(cells, entries)
        return self._decisions

    def _build_learning_curve(self, cells: list[Cell]) -> LearningCurve:
        facts, running = self._sweep.facts, self._sweep.running
        first = cells[0]
        epochs = 1 if first.error else int(first.config["training"]["epochs"])
        curves = [facts.list_epoch_values(cell.trial_id, self._objective) for cell in cells]
        values = [math.fsum(at) / len(at) for at in zip(*curves, strict=False)]
        if not all(facts[cell.trial_id].status == "done" for cell in cells):
            # The last epoch counts once the trial is finished: evaluated and exported.
            values = values[: epochs - 1]
        return LearningCurve(
            values=tuple(values),
            epochs=epochs,
            failed=any(map(self._sweep.has_failed, cells)),
            running=any(cell.trial_id in running for cell in cells),
            stopped=first.cell in self._stops,
            bracket=first.idx // self._bracket,
        )

    @cached_property
    def _stops(self) -> dict[str, int]:
        return self._sweep.facts.ledger.get_stops(self._sweep.plan.sweep_id, self.name)

    def _record_stops(self, cells: dict[int, list[Cell]], entries: list[LearningCurve]) -> None:
        """Record stopped cells, so that later results cannot revive them."""
        sweep = self._sweep
        for group, entry in zip(cells.values(), entries, strict=True):
            name, idx = group[0].cell, group[0].idx
            is_over = entry.failed or entry.epochs_trained >= entry.epochs or name in self._stops
            if self._decisions[idx] == STOP and not is_over:
                self._stops[name] = entry.epochs_trained
                if sweep.record:
                    ledger = sweep.facts.ledger
                    ledger.put_stop(sweep.plan.sweep_id, self.name, name, entry.epochs_trained)
