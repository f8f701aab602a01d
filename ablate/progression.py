"""How a sweep unfolds: which cells are known, given the facts of the ledger.

A fixed study's cells are known once the studies it is centred on are complete; a search's, round
by round. `Progression.advance` is called at the start and after every finished trial; it reads
facts and decides, and never waits. The plan's printout, the engine and `--cell` share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ablate.designs import Arm, Around, Compare, Search
from ablate.layers import has, lookup
from ablate.ledger import Ledger
from ablate.plan import Cell, Plan
from ablate.racing import Racing
from ablate.schedule import Schedule
from ablate.scheduling import STOP, Decision
from ablate.search import Told, propose


@dataclass(frozen=True)
class Fact:
    """What the ledger says of a trial. status None: nothing."""

    status: str | None
    evaluations: dict[str, dict[str, float]]

    def settles(self, evaluate: tuple[str, ...], metrics: tuple[str, ...]) -> bool:
        """Whether nothing remains to be done for a cell read on these splits."""
        if self.status == "failed":
            return True
        return self.status == "done" and not self.lacking(evaluate, metrics)

    def lacking(self, evaluate: Iterable[str], metrics: Iterable[str]) -> dict[str, list[str]]:
        """Split → the metrics, of these besides the usual ones, that it lacks; splits with
        nothing to add are left out, one that was never evaluated is in it in any case."""
        found = {
            split: [name for name in metrics if name not in self.evaluations.get(split, {})]
            for split in evaluate
        }
        return {s: names for s, names in found.items() if names or s not in self.evaluations}


class Facts:
    """The ledger's facts, read once per trial and again after `refresh`.

    evaluator: only its evaluations count; None: any.
    retry_failed: recorded failures do not count in this run. force: nor does any record.
    """

    def __init__(
        self, ledger: Ledger, evaluator: str | None, *, retry_failed: bool, force: bool = False
    ) -> None:
        self.ledger, self.evaluator = ledger, evaluator
        self.retry_failed, self.force = retry_failed, force
        self._known: dict[str, Fact] = {}
        self._values: dict[tuple[str, str], tuple[float, ...]] = {}
        self.version = 0  # changes whenever something known does

    def __getitem__(self, trial_id: str) -> Fact:
        if trial_id not in self._known:
            self.refresh(trial_id)
            failed = self._known[trial_id].status == "failed"
            if self.force or (self.retry_failed and failed):
                self._known[trial_id] = Fact(None, {})
        return self._known[trial_id]

    def values(self, trial_id: str, metric: str) -> tuple[float, ...]:
        """A metric at each whole epoch from the first on, until one lacks it."""
        key = (trial_id, metric)
        if key not in self._values:
            found: list[float] = []
            for row in self.ledger.epochs(trial_id):
                value = row["metrics"].get(metric)
                if row["epoch"] != len(found) + 1 or value is None:
                    break
                found.append(value)
            self._values[key] = tuple(found)
        return self._values[key]

    def refresh(self, trial_id: str) -> None:
        self.version += 1
        for key in [key for key in self._values if key[0] == trial_id]:
            del self._values[key]
        row = self.ledger.trial(trial_id)
        evaluations = self.ledger.evaluations(trial_id, self.evaluator) if row else {}
        self._known[trial_id] = Fact(row["status"] if row else None, evaluations)


@dataclass
class StudyState:
    """How far one study is. blocked: why it can go no further."""

    name: str
    size: int
    cells: list[Cell] = field(default_factory=list)
    listed: set[int] = field(default_factory=set)
    complete: bool = False
    blocked: str | None = None


@dataclass(frozen=True)
class Best:
    """The best cell of a study: mean objective over seeds. values: own and taken paths."""

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
        self.schedules = {
            name: Schedule(self, name)
            for name, study in plan.spec.studies.items()
            if getattr(study, "scheduler", None) is not None
        }
        self.races = {
            name: Racing(self, name, study.race)
            for name, study in plan.spec.studies.items()
            if study.race is not None
        }
        self.running: set[str] = set()  # trials of this driver that are under way
        self._best: dict[str, Best | None] = {}
        self._taken: dict[tuple[str, Arm], list[dict[str, Any]]] = {}

    def advance(self) -> list[Cell]:
        """Cells that have become known since the last call, in order."""
        fresh: list[Cell] = []
        for name in self.plan.order:
            state = self.studies[name]
            if state.complete or state.blocked:
                continue
            study = self.plan.spec.studies[name]
            while True:
                found = self._search(state) if isinstance(study, Search) else self._fixed(state)
                fresh += found
                if not found:
                    break
            state.complete = len(state.cells) == state.size and all(map(self.settled, state.cells))
        return fresh

    def settled(self, cell: Cell) -> bool:
        """Whether nothing remains to be done for a cell: done, failed, or stopped."""
        fact = self.facts[cell.trial_id]
        if cell.error is not None or fact.settles(cell.evaluate, cell.metrics):
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
        if len(state.cells) == state.size:  # asked after every trial
            return found
        for idx, point in enumerate(self.plan.spec.studies[state.name].listed):
            if idx in state.listed:
                continue
            taken = self.taken(state.name, point.arm)
            if taken is None:
                continue
            state.listed.add(idx)
            found += self.plan.cells(state.name, point, idx, taken)
        state.cells += found
        state.cells.sort(key=lambda cell: cell.idx)
        return found

    # ------------------------------------------------------------------ search

    def _search(self, state: StudyState) -> list[Cell]:
        """The next round, if every result of the rounds before it is known."""
        study = self.plan.spec.studies[state.name]
        assert isinstance(study, Search)
        start = len(state.listed)
        taken = self.taken(state.name, ())
        if taken is None or start >= study.trials or not all(map(self._known, state.cells)):
            return []
        key = self.plan.study_key(state.name, taken)
        ledger = self.facts.ledger
        known = ledger.proposals(key)
        earlier = [self._told(state, idx) for idx in range(start)]
        found: list[Cell] = []
        for idx in range(start, min(start + study.round, study.trials)):
            params = known[idx]["params"] if idx in known else propose(study, key, earlier)
            cells = self.plan.proposal(state.name, params, idx, taken)
            if self.record and idx not in known:
                ledger.put_proposal(key, idx, params, cells[0].config_hash)
                kept = ledger.proposals(key)[idx]["params"]
                if kept != params:  # another driver was first, with other versions perhaps
                    params = kept
                    cells = self.plan.proposal(state.name, params, idx, taken)
            earlier.append(Told(params, None, running=True))
            state.listed.add(idx)
            found += cells
        state.cells += found
        return found

    def _known(self, cell: Cell) -> bool:
        """Whether a cell says all that the next round waits for: its result, or under an
        asynchronous scheduler how it stood at a first pause."""
        if self.settled(cell):
            return True
        schedule = self.schedules.get(cell.study)
        return schedule is not None and schedule.asynchronous and schedule.paused(cell)

    def _told(self, state: StudyState, idx: int) -> Told:
        cells = [cell for cell in state.cells if cell.idx == idx]
        value, schedule = self.mean(cells), self.schedules.get(state.name)
        if value is not None or schedule is None:
            return Told(cells[0].coords, value)
        return Told(cells[0].coords, None, reports=schedule.reports(idx))

    # ---------------------------------------------------------------- centres

    def mean(self, cells: list[Cell]) -> float | None:
        """Mean objective over the seeds of one cell; None if any of them failed."""
        split, metric = self.plan.spec.objective.split("/")
        values = []
        for cell in cells:
            fact = self.facts[cell.trial_id]
            value = fact.evaluations.get(split, {}).get(metric)
            if cell.error or fact.status != "done" or value is None or not math.isfinite(value):
                return None
            values.append(value)
        return math.fsum(values) / len(values)

    def best(self, name: str) -> Best | None:
        """Of a complete study; None where every cell failed. Ties go to the lowest index."""
        if name not in self._best:
            by_idx: dict[int, list[Cell]] = {}
            dropped = self.races[name].dropped if name in self.races else {}
            for cell in self.studies[name].cells:
                if cell.idx in dropped:
                    continue
                by_idx.setdefault(cell.idx, []).append(cell)
            found: Best | None = None
            for idx in sorted(by_idx):
                value = self.mean(by_idx[idx])
                if value is not None and (found is None or value > found.value):
                    cell = by_idx[idx][0]
                    found = Best(cell, value, self._values(name, cell))
            self._best[name] = found
        return self._best[name]

    def _values(self, name: str, cell: Cell) -> dict[str, Any]:
        """What a study gives to those centred on it: what it took itself, and what it varies."""
        study = self.plan.spec.studies[name]
        arm: Arm = tuple(cell.coords.items()) if isinstance(study, Compare) else ()
        paths = dict.fromkeys(study.paths)
        for values in self._taken.get((name, arm)) or ():
            paths.update(dict.fromkeys(values))
        return {path: lookup(cell.config, path) for path in paths if has(cell.config, path)}

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
        if centre.blocked:
            self.studies[name].blocked = f"waits for {around.best_of}, which is blocked"
        if not centre.complete:
            return None
        best = self.best(around.best_of)
        if best is None:
            self.studies[name].blocked = f"no trial of {around.best_of} succeeded"
            return None
        if around.take is None:
            return best.values
        return {path: lookup(best.cell.config, path) for path in around.take}
