"""The state of a running sweep: its studies, their cells, and how far each cell is to train."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ablate.designs.base import ENSEMBLE, SPLITS
from ablate.ledger.facts import Facts
from ablate.ledger.limits import Limits
from ablate.plan.plan import Cell, Plan
from ablate.search.sampling import ObservedTrial
from ablate.search.scheduling import STOP, WAIT, Decision, LearningCurve, SchedulerBase
from trainables.core.runtime import locate_trial_folder
from trainables.jobs.request import Fold, Job
from trainables.words.files import join_inside


@dataclass
class StudyState:
    """The progress of one study.

    Attributes:
        size: number of cells planned, over seeds and folds.
        cells: those known so far.
        listed: indices of points or proposals that have become cells.
        awaited: a cell that was not settled at the last check.
        complete: all cells are settled.
        blocked: why the study cannot go on.
        short: it ends with fewer cells than planned, for the reason in `blocked`.
        dropped: index of a cell that a race ended → number of its seeds.
        infeasible: index of a proposal that is not trained, because it would need more than the
            limits of its search → the proposal. It has no cells.
    """

    name: str
    size: int
    cells: list[Cell] = field(default_factory=list)
    listed: set[int] = field(default_factory=set)
    awaited: Cell | None = None
    complete: bool = False
    blocked: str | None = None
    short: bool = False
    dropped: dict[int, int] = field(default_factory=dict)
    infeasible: dict[int, ObservedTrial] = field(default_factory=dict)
    _folds: tuple[int, dict[tuple[int, int], list[Cell]]] = (0, {})  # number of cells, groups

    def group_by_index(self) -> dict[int, list[Cell]]:
        """Group the cells by their index in the study, over all seeds and folds."""
        groups: dict[int, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.idx, []).append(cell)
        return dict(sorted(groups.items()))

    def folds(self, cell: Cell) -> list[Cell]:
        """Return the cells of all folds (class splits) that have the index and seed of `cell`."""
        count, groups = self._folds
        if count != len(self.cells):  # cells were added: group them anew
            groups = {}
            for other in self.cells:
                groups.setdefault((other.idx, other.seed), []).append(other)
            self._folds = len(self.cells), groups
        return groups.get((cell.idx, cell.seed), [cell])


class SweepState:
    """The plan, the ledger's facts and the studies' progress, which all parts of a sweep share.

    With `evaluate: [ensemble]` the trial of fold 0 is evaluated once more when all folds of its
    cell and seed are done, on their concatenated embeddings (`trainables/jobs/ensemble.py`). If a
    fold has failed, there is no ensemble and no cell waits for it.

    Args:
        plan: the checked plan.
        facts: what the ledger holds of trials.
        record: whether to write proposals and stops to the ledger (the engine does, a plan not).

    Attributes:
        studies: the progress of each study that runs, by name.
        running: trials that this driver runs now.
        scheduled_studies: the schedulers of the studies that have one, by name of the study.
    """

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        """Begin without known cells; `record` allows writing proposals and stops to the ledger."""
        self.plan, self.facts, self.record = plan, facts, record
        self.studies = {name: StudyState(name, plan.count_cells(name)) for name in plan.order}
        self.running: set[str] = set()
        self.scheduled_studies = {
            name: ScheduledStudy(self, name, scheduler)
            for name in plan.order
            if (scheduler := plan.spec.studies[name].get_scheduler()) is not None
        }

    def has_failed(self, cell: Cell) -> bool:
        """Return whether a cell's configuration is invalid or its trial failed."""
        return cell.error is not None or self.facts[cell.trial_id].status == "failed"

    def is_settled(self, cell: Cell) -> bool:
        """Return whether a cell is done, failed, or stopped by its scheduler."""
        fact = self.facts[cell.trial_id]
        if cell.error is not None or fact.is_settled(self.list_readable_splits(cell), cell.metrics):
            return True
        return self.get_decision(cell) == STOP

    def measure_excess(self, cells: Iterable[Cell]) -> float | None:
        """Return the largest excess of a search's trials over its limits; None without limits."""
        excesses = [
            limits.measure_excess(self.facts[cell.trial_id].needs)
            for cell in cells
            if (limits := get_limits(self.plan.spec.studies[cell.study])) is not None
        ]
        return max(excesses, default=None)

    def has_exceeded_limits(self, cells: Iterable[Cell]) -> bool:
        """Return whether a search's trials needed more than its limits."""
        excess = self.measure_excess(cells)
        return excess is not None and excess > 0

    def get_decision(self, cell: Cell) -> Decision | None:
        """Return the scheduler's decision on a cell; None if no scheduler has to decide."""
        scheduled = self.scheduled_studies.get(cell.study)
        if scheduled is None or self.facts[cell.trial_id].status in ("done", "failed"):
            return None  # the training of a done or failed trial is over
        return scheduled.get_decision(cell)

    def is_known(self, cell: Cell) -> bool:
        """Return whether the next round of a search need not wait for a cell.

        The cell is then settled, or paused by a scheduler that decides without waiting for others.
        """
        if self.is_settled(cell):
            return True
        study = self.scheduled_studies.get(cell.study)
        return study is not None and study.scheduler.asynchronous and study.is_paused(cell)

    def list_readable_splits(self, cell: Cell) -> tuple[str, ...]:
        """Return a cell's splits, without the ensemble of its folds if a fold has failed."""
        if ENSEMBLE not in cell.evaluate:
            return cell.evaluate
        has_failed = any(map(self.has_failed, self.studies[cell.study].folds(cell)))
        return tuple(split for split in cell.evaluate if split != ENSEMBLE or not has_failed)

    def list_ensemble_cells(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that evaluate an ensemble of folds to which one of `cells` belongs."""
        return [
            fold
            for cell in cells
            if cell.fold is not None
            for fold in self.studies[cell.study].folds(cell)
            if ENSEMBLE in fold.evaluate
        ]

    def list_ensemble_members(self, cells: Iterable[Cell], trials: Path) -> tuple[Fold, ...] | None:
        """Return an ensemble's folds and models; None if there is none, or a fold has no model."""
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

    def choose_job(self, cells: Sequence[Cell], training: Job, trials: Path) -> Job | None:
        """Return a trial's training job or, once it is done, a job for the evaluations it lacks.

        The last evaluation is that of an ensemble of folds; return None while it lacks a fold.
        """
        fact = self.facts[training.trial_id]
        if fact.status != "done":
            return training
        requested = {split for cell in cells for split in cell.evaluate}
        missing = fact.find_missing_evaluations(requested, training.metrics)
        if set(missing) == {ENSEMBLE}:
            members = self.list_ensemble_members(cells, trials)
            if members is None:
                return None
            return replace(training, evaluate=(ENSEMBLE,), mode="ensemble", members=members)
        splits = tuple(split for split in SPLITS if split in missing and split != ENSEMBLE)
        return replace(training, evaluate=splits, mode="evaluate")


def get_limits(study: Any) -> Limits | None:
    """Return the limits of a study; None if it has none, or no such option."""
    return getattr(study, "limits", None)


class ScheduledStudy:
    """Apply a scheduler to the cells of one study.

    All seeds of a cell run to the same rung, and the scheduler compares their mean.
    """

    def __init__(self, state: SweepState, name: str, scheduler: SchedulerBase) -> None:
        self._sweep, self.name, self.scheduler = state, name, scheduler
        self._state = state.studies[name]
        self._objective = state.plan.spec.objective
        # cells are compared within brackets: the rounds of a search, otherwise the whole study
        sampled = state.plan.spec.studies[name].sampling()
        in_round = sampled.round if sampled is not None else None  # a number, or "asynchronous"
        self._bracket_size = in_round if isinstance(in_round, int) else state.plan.count_cells(name)
        # cell → epoch of its stop; read before epochs, which other drivers record before a stop
        self._stops = state.facts.ledger.get_stops(state.plan.sweep_id, name)
        self._decisions: dict[int, Decision] = {}
        self._version: object = None  # version of the facts and number of cells decided on

    def get_decision(self, cell: Cell) -> Decision:
        """Return the epoch to train a cell to, "stop", or "wait" (for other cells or seeds)."""
        decision = self._run_scheduler()[cell.idx]
        if isinstance(decision, int) and decision < cell.config["training"]["epochs"]:
            # at that epoch, this seed waits until the cell's other seeds have reached it
            reached = len(self._sweep.facts.list_epoch_values(cell.trial_id, self._objective))
            return WAIT if reached >= decision else decision
        return decision

    def is_paused(self, cell: Cell) -> bool:
        """Return whether a cell has trained some epochs and does not run now."""
        values = self._sweep.facts.list_epoch_values(cell.trial_id, self._objective)
        return bool(values) and cell.trial_id not in self._sweep.running

    def list_best_by_epoch(self, idx: int) -> dict[int, float]:
        """Map each trained epoch of a cell to the best objective until then, for samplers."""
        cells = [cell for cell in self._state.cells if cell.idx == idx]
        curve = self._build_learning_curve(0, cells)
        return {epoch: curve.find_best_until(epoch) for epoch in range(1, curve.epochs_trained + 1)}

    def _run_scheduler(self) -> dict[int, Decision]:
        """Return the decision on every cell; decide anew only after facts or cells have changed."""
        count = len(self._state.cells)
        version = self._sweep.facts.version, count
        if version != self._version:
            cells = self._state.group_by_index()
            curves = [self._build_learning_curve(*entry) for entry in enumerate(cells.values())]
            decisions = self.scheduler.decide(curves, closed=count == self._state.size)
            self._decisions = dict(zip(cells, decisions, strict=True))
            self._version = version
            if self.scheduler.keeps_stops:
                self._record_stops(cells, curves)
        return self._decisions

    def _build_learning_curve(self, number: int, cells: list[Cell]) -> LearningCurve:
        """Average the objective by epoch over the seeds and folds of the study's cell `number`."""
        facts, running = self._sweep.facts, self._sweep.running
        first = cells[0]
        epochs = 1 if first.error else int(first.config["training"]["epochs"])  # 1: invalid cell
        curves = [facts.list_epoch_values(cell.trial_id, self._objective) for cell in cells]
        values = [math.fsum(epoch) / len(epoch) for epoch in zip(*curves, strict=False)]
        if not all(facts[cell.trial_id].status == "done" for cell in cells):
            # The last epoch counts once the trial is finished, that is evaluated and exported.
            values = values[: epochs - 1]
        return LearningCurve(
            values=tuple(values),
            epochs=epochs,
            failed=any(map(self._sweep.has_failed, cells)),
            running=any(cell.trial_id in running for cell in cells),
            stopped=self._keep_stop(first.cell, len(values)),
            bracket=number // self._bracket_size,
        )

    def _keep_stop(self, cell: str, epochs_trained: int) -> bool:
        """Return whether a cell has been stopped, and forget a stop of trials that it had before.

        The trials that were stopped have trained to that epoch. A cell gets others by a raised
        REVISION, by further seeds or by other proposals, and its trials start again by `--force`.
        """
        if epochs_trained < self._stops.get(cell, 0):
            del self._stops[cell]
            if self._sweep.record:
                self._sweep.facts.ledger.delete_stop(self._sweep.plan.sweep_id, self.name, cell)
        return cell in self._stops

    def _record_stops(self, cells: dict[int, list[Cell]], curves: list[LearningCurve]) -> None:
        """Record newly stopped cells, so that later results of other cells do not revive them."""
        sweep = self._sweep
        for group, curve in zip(cells.values(), curves, strict=True):
            name, idx = group[0].cell, group[0].idx
            # no record for a cell that failed, is fully trained, or is recorded already
            is_over = curve.failed or curve.epochs_trained >= curve.epochs or name in self._stops
            if self._decisions[idx] == STOP and not is_over:
                self._stops[name] = curve.epochs_trained
                if sweep.record:
                    ledger = sweep.facts.ledger
                    ledger.put_stop(sweep.plan.sweep_id, self.name, name, curve.epochs_trained)
