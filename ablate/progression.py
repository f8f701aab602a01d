"""How a sweep unfolds: which cells are known, given the facts of the ledger.

A fixed study's cells are known once the studies it is centred on are complete; a search's, round
by round. `Progression.advance` is called at the start and after every finished trial; it reads
facts and decides, and never waits. The plan's printout, the engine and `--cell` share it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate.cell import Cell
from ablate.ensembles import Ensembles
from ablate.facts import Facts
from ablate.layers import has, lookup
from ablate.plan import Plan
from ablate.promote import as_promoted
from ablate.proposing import Proposer
from ablate.racing import Racing
from ablate.schedule import Schedule
from ablate.scheduler_base import STOP, Decision
from ablate.study_parts import Arm, Around, Objective, Point


@dataclass
class StudyState:
    """How far one study is.

    awaited: a cell that was not settled when last looked at. complete: nothing of it remains to
        be done. blocked: why it can go no further. short: it has fewer cells than planned, as
        `blocked` says, and is complete with those.
    """

    name: str
    size: int
    cells: list[Cell] = field(default_factory=list)
    listed: set[int] = field(default_factory=set)
    awaited: Cell | None = None
    complete: bool = False
    blocked: str | None = None
    short: bool = False


@dataclass(frozen=True)
class Best:
    """A good cell of a study: mean objective over seeds. values: own and taken paths."""

    cell: Cell
    value: float
    values: dict[str, Any]


class Progression:
    """The studies of a plan, and the cells known of them.

    Args:
        record: write proposals to the ledger (the engine), or only compute them (a plan).
    """

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        self.plan, self.facts, self.record = plan, facts, record
        self.studies = {name: StudyState(name, plan.size(name)) for name in plan.order}
        designs = {name: plan.spec.studies[name] for name in plan.order}  # those asked for
        self.schedules = {
            name: Schedule(self, name)
            for name, study in designs.items()
            if study.halting() is not None
        }
        self.races = {
            name: Racing(self, name, study.race)
            for name, study in designs.items()
            if study.race is not None
        }
        self.proposers = {
            name: Proposer(self, name)
            for name, study in designs.items()
            if study.sampling() is not None
        }
        self.ensembles = Ensembles(self)
        self.running: set[str] = set()  # trials of this driver that are under way
        self._rankings: dict[tuple[str, str | None], list[Best]] = {}
        self._taken: dict[tuple[str, Arm], list[dict[str, Any]]] = {}

    def advance(self) -> list[Cell]:
        """Cells that have become known since the last call, in order."""
        fresh: list[Cell] = []
        for name in self.plan.order:
            state = self.studies[name]
            if state.complete or (state.blocked and not state.short):
                continue
            proposer = self.proposers.get(name)
            while found := proposer.ready() if proposer else self._fixed(state):
                fresh += found
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

    def settled(self, cell: Cell) -> bool:
        """Whether nothing remains to be done for a cell: done, failed, or stopped."""
        fact = self.facts[cell.trial_id]
        if cell.error is not None or fact.settles(self.ensembles.wanted(cell), cell.metrics):
            return True
        return self.until(cell) == STOP

    def stopped(self, cell: Cell) -> bool:
        """Whether a scheduler has ended a cell before its end."""
        return not cell.error and self.until(cell) == STOP

    def until(self, cell: Cell) -> Decision | None:
        """How far a cell is to train now; None: to its end, without a pause."""
        schedule = self.schedules.get(cell.study)
        if schedule is None or self.facts[cell.trial_id].status in ("done", "failed"):
            return None  # what a finished one may lack is an evaluation
        return schedule.decision(cell)

    def leg(self, trial_id: str, *, begins: bool) -> None:
        """A trial of this driver begins to run, or has ended, if only for now."""
        (self.running.add if begins else self.running.discard)(trial_id)
        self.facts.version += 1

    def ready(self) -> list[Cell]:
        """Known cells of scheduled studies that may train now, those on their way first."""
        found = [
            cell
            for name in self.schedules
            for cell in self.studies[name].cells
            if cell.error is None and isinstance(self.until(cell), int)
        ]
        return sorted(found, key=lambda cell: not self.schedules[cell.study].paused(cell))

    # ------------------------------------------------------------ fixed designs

    def _fixed(self, state: StudyState) -> list[Cell]:
        found: list[Cell] = []
        race = self.races.get(state.name)
        if race is not None:
            found = race.fresh(state)
            state.cells = sorted([*state.cells, *found], key=lambda cell: (cell.idx, cell.seed))
            return found
        if len(state.cells) == state.size or state.short:  # asked after every trial
            return found
        for idx, point in enumerate(self.plan.spec.studies[state.name].listed):
            if idx in state.listed:
                continue
            taken = self.taken(state.name, point.arm)
            if taken is None:
                continue
            state.listed.add(idx)
            found += self.plan.cells(state.name, self.told(state.name, point), idx, taken)
        state.cells += found
        state.cells.sort(key=lambda cell: cell.idx)
        return found

    def told(self, name: str, point: Point) -> Point:
        """A point whose centre is known; a promoted cell's coordinates tell which cell it was."""
        around = self.plan.spec.studies[name].source(point.arm)
        if around is None:
            return point
        source = self.ranking(around.best_of, around.by)[around.rank - 1].cell
        return as_promoted(point, source.cell, source.coords)

    # ------------------------------------------------------------------ search

    def wanting(self) -> bool:
        """Whether an asynchronous search may still propose."""
        return any(proposer.wanting() for proposer in self.proposers.values())

    def demand(self) -> list[Cell]:
        """One more proposal for a worker that has nothing else to do, from what is known now."""
        for proposer in self.proposers.values():
            if proposer.wanting():
                return proposer.demand()
        return []

    def known(self, cell: Cell) -> bool:
        """Whether a cell says all that the next round waits for: its result, or under an
        asynchronous scheduler how it stood at a first pause."""
        if self.settled(cell):
            return True
        schedule = self.schedules.get(cell.study)
        return schedule is not None and schedule.scheduler.asynchronous and schedule.paused(cell)

    # ---------------------------------------------------------------- centres

    def _metrics(self, name: str) -> list[str]:
        return [objective.metric for objective in self.plan.objectives(name)]

    def values(self, cells: list[Cell], metrics: Sequence[str]) -> tuple[float, ...] | None:
        """Mean of each metric over the seeds of one cell; None if any of them failed."""
        columns: list[list[float]] = [[] for _ in metrics]
        for cell in cells:
            fact = self.facts[cell.trial_id]
            if cell.error or fact.status != "done":
                return None
            for metric, column in zip(metrics, columns, strict=True):
                split, _, last = metric.partition("/")
                value = fact.evaluations.get(split, {}).get(last)
                if value is None or not math.isfinite(value):
                    return None
                column.append(value)
        return tuple(math.fsum(column) / len(column) for column in columns)

    def mean(self, cells: list[Cell]) -> float | None:
        """Mean of the sweep's objective over the seeds of one cell; None if any of them failed."""
        found = self.values(cells, [self.plan.spec.objective])
        return None if found is None else found[0]

    def best(self, name: str, by: str | None = None) -> Best | None:
        """The first of the ranking of a complete study: a cell of the Pareto front. None where
        every cell failed."""
        return next(iter(self.ranking(name, by)), None)

    def ranking(self, name: str, by: str | None = None) -> list[Best]:
        """The cells of a complete study that have a value, best first.

        The first objective decides, or `by`; on a tie the next one, and at last the lower index.
        Cells that failed at a seed or a fold, or that a scheduler or a race ended, are not in it.
        """
        if (name, by) not in self._rankings:
            objectives = list(self.plan.objectives(name))
            if by is not None and by not in self._metrics(name):
                objectives.insert(0, Objective(metric=by))
            objectives.sort(key=lambda objective: objective.metric != by)
            metrics = [objective.metric for objective in objectives]
            signs = [1 if objective.direction == "maximize" else -1 for objective in objectives]
            by_idx: dict[int, list[Cell]] = {}
            dropped = self.races[name].dropped if name in self.races else {}
            for cell in self.studies[name].cells:
                if cell.idx in dropped:
                    continue
                by_idx.setdefault(cell.idx, []).append(cell)
            ranked: list[tuple[list[float], int, Cell]] = []
            for idx, cells in by_idx.items():
                values = self.values(cells, metrics)
                if values is not None:
                    below = [-sign * value for sign, value in zip(signs, values, strict=True)]
                    ranked.append((below, idx, cells[0]))
            ranked.sort(key=lambda entry: entry[:2])
            self._rankings[name, by] = [
                Best(cell, -signs[0] * below[0], self._values(name, cell))
                for below, _, cell in ranked
            ]
        return self._rankings[name, by]

    def _values(self, name: str, cell: Cell) -> dict[str, Any]:
        """What a study gives to those centred on it: what it took itself, and what it varies."""
        study = self.plan.spec.studies[name]
        paths, arm = dict.fromkeys(study.paths), Arm()
        if study.fixed:
            point = study.listed[cell.idx]
            arm = point.arm
            paths.update(dict.fromkeys(study.gives(point)))
        for values in self._taken.get((name, arm)) or ():
            paths.update(dict.fromkeys(values))
        whole = [p for p in paths if not any(p.startswith(f"{other}.") for other in paths)]
        return {path: lookup(cell.config, path) for path in whole if has(cell.config, path)}

    def taken(self, name: str, arm: Arm) -> list[dict[str, Any]] | None:
        """The layers a cell takes from other studies; None while one of those is incomplete."""
        if (name, arm) in self._taken:
            return self._taken[name, arm]
        found = []
        for around in self.plan.spec.studies[name].needs(arm):
            values = self._take(name, around)
            if values is None:
                return None
            found.append(values)
        self._taken[name, arm] = found
        return found

    def _take(self, name: str, around: Around) -> dict[str, Any] | None:
        centre = self.studies[around.best_of]
        if centre.blocked and not centre.short:
            self.studies[name].blocked = f"waits for {around.best_of}, which is blocked"
        if not centre.complete:
            return None
        ranking = self.ranking(around.best_of, around.by)
        if len(ranking) < around.rank:
            self._block(name, around, len(ranking))
            return None
        best = ranking[around.rank - 1]
        if around.take is None:
            return best.values
        return {path: lookup(best.cell.config, path) for path in around.take}

    def _block(self, name: str, around: Around, succeeded: int) -> None:
        """A study whose centre has no cell of that rank goes no further; what a promote study has
        by then it keeps."""
        state, study = self.studies[name], self.plan.spec.studies[name]
        if succeeded == 0:
            state.blocked = f"no trial of {around.best_of} succeeded"
        elif study.source() is not None and around not in study.around:
            state.short = True
            state.blocked = (
                f"only {succeeded} cells of {around.best_of} have a result, of {study.size} to be "
                "promoted"
            )
        else:
            state.blocked = (
                f"{around.best_of} has no cell of rank {around.rank}: {succeeded} have a result"
            )
