"""Decide which cells of a sweep are known, given the results in the ledger.

The cells of a fixed study are known once the studies that it builds on are complete, those of a
search round by round (`Proposer`), those of a race seed by seed (`Racing`).
`Progression.list_new_cells` is called at the start and after each finished trial; it never waits.
The plan, the engine and `--cell` use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ablate.designs.base import SampledDesign
from ablate.designs.parts import NEUTRAL, NEUTRAL_POINT
from ablate.ledger.facts import Facts
from ablate.plan.plan import Cell, Plan
from ablate.samplers import branches
from ablate.samplers.history import ObservedTrial
from ablate.samplers.sampling import propose
from ablate.schedulers.precision import PrecisionSeeds, evaluate_precision
from ablate.schedulers.racing import Race, Standing, evaluate_race
from ablate.sweep.ranking import Ranking
from ablate.sweep.state import StudyState, SweepState
from ablate.values.paths import get_at, has_path
from reports.tables.labels import choose_smallest_effect, display_scale


class Proposer:
    """Propose the trials of one search (`ablate/samplers/sampling.py`).

    A proposal is recorded in the ledger before its trial runs. So none is lost or repeated, and two
    drivers of one study use the same proposals.
    """

    def __init__(self, sweep: Progression, name: str, study: SampledDesign) -> None:
        self._sweep, self.name, self.study = sweep, name, study
        self._state = sweep.studies[name]
        self._neutral_params: dict[str, Any] | None = None  # of the neutral cell

    def propose_ready(self) -> list[Cell]:
        """Return the cells of the next round if all results of earlier rounds are known.

        For an asynchronous search, return the proposals that the ledger already has.
        """
        state, size = self._state, self.study.round
        start = len(state.listed)
        if self._find_inherited() is None or (first := self._find_unlisted_neutral()) is None:
            return []
        if first or start >= self.study.trials:
            return first
        proposals = self._sweep.facts.ledger.list_proposals(self.key)
        fresh: list[Cell] = []
        if isinstance(size, str):
            while (idx := len(state.listed)) in proposals and idx < self.study.trials:
                fresh += self._build_proposal(idx, proposals[idx]["params"])
            return fresh
        if start and not all(map(self._sweep.is_known, state.cells)):
            return []
        earlier = self.list_history({})
        for idx in range(start, min(start + size, self.study.trials)):
            params = proposals[idx]["params"] if idx in proposals else None
            cells = self._build_proposal(idx, params, earlier)
            beside = self._list_round_before(start, idx)
            earlier.append(ObservedTrial(cells[0].coords, None, running=True, beside=beside))
            fresh += cells
        return fresh

    def can_propose(self) -> bool:
        """Return whether this is an asynchronous search that can propose now."""
        if not self.study.asynchronous or self._state.blocked or self._find_inherited() is None:
            return False
        neutral = self._neutral_cells  # has its result, if there is to be one
        if self._sweep.plan.spec.studies[self.name].find_baseline() is not None and not neutral:
            return False
        has_begun = all(map(self._sweep.is_known, neutral))
        return has_begun and len(self._state.listed) < self.study.trials

    def propose_one(self) -> list[Cell]:
        """Return the cells of one more proposal of an asynchronous search."""
        proposals, idx = self._sweep.facts.ledger.list_proposals(self.key), len(self._state.listed)
        earlier = self.list_history({i: row["beside"] for i, row in proposals.items()})
        ahead = self._neutral_params is not None
        beside = tuple(i - ahead for i, trial in enumerate(earlier) if trial.running)
        params = proposals[idx]["params"] if idx in proposals else None  # another driver's
        return self._build_proposal(idx, params, earlier, beside)

    def _find_inherited(self) -> list[dict[str, Any]] | None:
        return self._sweep.ranking.resolve_inherited(self.name, ())

    @cached_property
    def key(self) -> str:
        return self._sweep.plan.compute_study_key(
            self.name, self._find_inherited() or [], self._neutral_params
        )

    @property
    def _neutral_cells(self) -> list[Cell]:
        return [cell for cell in self._state.cells if cell.cell == NEUTRAL]

    def _find_unlisted_neutral(self) -> list[Cell] | None:
        """Return the neutral cell if it is not listed yet, or None if its baseline is unknown.

        It runs with the first round, whose proposals ignore its result. An asynchronous search
        starts after its result.
        """
        plan = self._sweep.plan
        if plan.spec.studies[self.name].find_baseline() is None or self._neutral_cells:
            return []
        bases = self._sweep.ranking.resolve_inherited(self.name, NEUTRAL_POINT.arm)
        if bases is None:
            return None
        space, merged = self.study.space, plan.build_layers(self.name, NEUTRAL_POINT, bases).merged
        varied = {path: get_at(merged, path) for path in space if has_path(merged, path)}
        point = replace(NEUTRAL_POINT, coords=NEUTRAL_POINT.coords | varied)
        cells = plan.build_cells(self.name, point, self.study.trials, bases)
        if not any(cell.error for cell in cells):
            self._neutral_params = branches.find_proposal(space, cells[0].config)
        self._state.cells += cells
        return cells

    def _list_round_before(self, start: int, idx: int) -> tuple[int, ...]:
        """Return the earlier proposals of the round that begins at `start`, before proposal `idx`.

        The neutral cell counts as the first proposal of the first round.
        """
        ahead = self._neutral_params is not None
        return tuple(range(start + ahead if start else 0, idx + ahead))

    def _build_proposal(
        self,
        idx: int,
        params: dict[str, Any] | None,
        earlier: list[ObservedTrial] | None = None,
        beside: tuple[int, ...] | None = None,
    ) -> list[Cell]:
        """Return the cells of proposal `idx`, and record it if it is new."""
        plan, bases, new = self._sweep.plan, self._find_inherited() or [], params is None
        if params is None:
            params = propose(self.study, self.key, earlier or [])
        cells = plan.build_proposal_cells(self.name, params, idx, bases)
        if self._sweep.record and new:
            ledger = self._sweep.facts.ledger
            ledger.put_proposal(self.key, idx, params, cells[0].config_hash, beside)
            first = ledger.list_proposals(self.key)[idx]["params"]
            if first != params:  # another driver's, with other versions perhaps
                cells = plan.build_proposal_cells(self.name, first, idx, bases)
        self._state.listed.add(idx)
        self._state.cells += cells
        return cells

    def list_history(self, beside: Mapping[int, tuple[int, ...]]) -> list[ObservedTrial]:
        """Return the earlier proposals with their results.

        Args:
            beside: for each proposal of an asynchronous search, those that were running when it was
                made.
        """
        earlier, size, neutral = list[ObservedTrial](), self.study.round, self._neutral_params
        if neutral is not None:
            first = replace(self._observe_cells(self._neutral_cells), params=neutral)
            if isinstance(size, int) and not self._state.listed:  # known or not: as always
                first = ObservedTrial(neutral, None, running=True)
            earlier.append(first)
        for idx, cells in self._state.group_by_index().items():
            if cells[0].cell == NEUTRAL:
                continue
            if isinstance(size, int):
                waiting = self._list_round_before(idx // size * size, idx)
            else:
                waiting = tuple(
                    position + (neutral is not None) for position in beside.get(idx, ())
                )
            earlier.append(replace(self._observe_cells(cells), beside=waiting))
        return earlier

    def _observe_cells(self, cells: list[Cell]) -> ObservedTrial:
        params = cells[0].coords
        if not all(map(self._sweep.is_known, cells)):
            return ObservedTrial(params, None, running=True)
        metrics = [objective.metric for objective in self._sweep.plan.list_objectives(self.name)]
        values = self._sweep.ranking.mean_metrics(cells, metrics)
        legs = self._sweep.legs.get(self.name)
        if values is not None or legs is None:
            return ObservedTrial(params, values)
        return ObservedTrial(params, values, reports=legs.list_best_by_epoch(cells[0].idx))


class Racing:
    """List the cells of a study with a race, one seed after the other."""

    def __init__(self, sweep: Progression, name: str, race: Race) -> None:
        self._sweep, self.name, self.race = sweep, name, race
        self._every: dict[int, dict[int, Cell]] = {}  # idx → seed → cell
        self._listed: set[tuple[int, int]] = set()

    def list_new_cells(self, state: StudyState) -> list[Cell]:
        """Return the cells that the race adds now, and update the state of its study."""
        plan, study = self._sweep.plan, self._sweep.plan.spec.studies[self.name]
        if not self._every:
            bases = [
                self._sweep.ranking.resolve_inherited(self.name, point.arm)
                for point in study.all_points
            ]
            if any(values is None for values in bases) and not state.short:
                return []
            for idx, (point, values) in enumerate(zip(study.all_points, bases, strict=True)):
                if values is None:
                    continue
                promoted = self._sweep.ranking.resolve_point(self.name, point)
                cells = plan.build_cells(self.name, promoted, idx, values)
                self._every[idx] = {cell.seed: cell for cell in cells}
                state.listed.add(idx)
        seeds = plan.list_seeds(self.name)
        now = self._evaluate(seeds)
        state.dropped = now.dropped
        cell_count = study.size - len(now.dropped)
        state.size = sum(now.dropped.values()) + self._count_seeds(seeds, now) * cell_count
        fresh = [
            self._every[idx][seed]
            for idx in now.alive
            for seed in seeds[: now.seeds]
            if (idx, seed) not in self._listed
        ]
        self._listed |= {(cell.idx, cell.seed) for cell in fresh}
        return fresh

    def _evaluate(self, seeds: Sequence[int]) -> Standing:
        return evaluate_race(
            self.race, seeds, {idx: self._collect_values(idx) for idx in self._every}
        )

    def _count_seeds(self, seeds: Sequence[int], now: Standing) -> int:
        """Return how many seeds each remaining cell gets."""
        return len(seeds)

    def _collect_values(self, idx: int) -> dict[int, float | None]:
        return {
            seed: self._sweep.ranking.mean_objective([cell])
            for seed, cell in self._every[idx].items()
            if (idx, seed) in self._listed and self._sweep.is_settled(cell)
        }


class Staging(Racing):
    """List the cells of a study whose number of seeds follows from a first stage."""

    def __init__(self, sweep: Progression, name: str, precision: PrecisionSeeds) -> None:
        super().__init__(sweep, name, Race())
        self.precision = precision
        plan, study = sweep.plan, sweep.plan.spec.studies[name]
        self.metric = plan.find_primary_metric(name)
        smallest = choose_smallest_effect(plan.spec.report.smallest, self.metric)
        wanted = precision.precision or 0.8 * smallest
        self.half_width = wanted / display_scale(self.metric)
        baseline = next(
            (t.baseline for t in plan.spec.report.tables if t.study == name and t.baseline), None
        )
        cells = [point.cell for point in study.all_points]
        off = [i for i, p in enumerate(study.all_points) if {*p.coords.values()} == {"off"}]
        self.baseline = cells.index(baseline) if baseline in cells else next(iter(off), 0)

    def _evaluate(self, seeds: Sequence[int]) -> Standing:
        values = {idx: self._collect_values(idx) for idx in self._every}
        if self.baseline not in values:
            return Standing(tuple(values), self.precision.first)
        return evaluate_precision(self.precision, values, self.baseline, self.half_width)

    def _count_seeds(self, seeds: Sequence[int], now: Standing) -> int:
        """Return the largest possible number of seeds until the first stage is complete."""
        stage = range(self.precision.first)
        over = all((idx, seed) in self._listed for idx in self._every for seed in stage)
        is_complete = over and all(
            len(self._collect_values(idx)) >= len(stage) for idx in self._every
        )
        return now.seeds if is_complete else len(seeds)

    def _collect_values(self, idx: int) -> dict[int, float | None]:
        split, _, metric = self.metric.partition("/")
        facts = self._sweep.facts
        return {
            seed: facts[cell.trial_id].evaluations.get(split, {}).get(metric)
            for seed, cell in self._every[idx].items()
            if (idx, seed) in self._listed and self._sweep.is_settled(cell)
        }


class Progression(SweepState):
    """List the cells of all studies of a plan as they become known."""

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        super().__init__(plan, facts, record=record)
        self.ranking = Ranking(self)
        self.races: dict[str, Racing] = {}
        self.proposers: dict[str, Proposer] = {}
        for name in plan.order:
            study = plan.spec.studies[name]
            if study.race is not None:
                self.races[name] = Racing(self, name, study.race)
            elif (precision := plan.find_precision(name)) is not None:
                self.races[name] = Staging(self, name, precision)
            if (sampled := study.sampling()) is not None:
                self.proposers[name] = Proposer(self, name, sampled)

    def list_new_cells(self) -> list[Cell]:
        """Return the cells that have become known since the last call, in order."""
        fresh: list[Cell] = []
        for name in self.plan.order:
            state = self.studies[name]
            if state.complete or (state.blocked and not state.short):
                continue
            proposer = self.proposers.get(name)
            while cells := proposer.propose_ready() if proposer else self._list_fixed_cells(state):
                fresh += cells
            listed = len(state.cells) == state.size or state.short
            state.complete = listed and not self._is_unfinished(state)
        return fresh

    def _is_unfinished(self, state: StudyState) -> bool:
        """Return whether any cell is unsettled.

        This is asked after each trial, so the cell found last time, which is the last of the study,
        is checked first.
        """
        if state.awaited is None or self.is_settled(state.awaited):
            unsettled = (cell for cell in reversed(state.cells) if not self.is_settled(cell))
            state.awaited = next(unsettled, None)
        return state.awaited is not None

    def _list_fixed_cells(self, state: StudyState) -> list[Cell]:
        """Return new cells of a fixed design, whose bases are known now."""
        race = self.races.get(state.name)
        if race is not None:
            fresh = race.list_new_cells(state)
            state.cells = sorted([*state.cells, *fresh], key=lambda cell: (cell.idx, cell.seed))
            return fresh
        fresh = []
        if len(state.cells) == state.size or state.short:  # asked after every trial
            return fresh
        for idx, point in enumerate(self.plan.spec.studies[state.name].all_points):
            if idx in state.listed:
                continue
            bases = self.ranking.resolve_inherited(state.name, point.arm)
            if bases is None:
                continue
            state.listed.add(idx)
            promoted = self.ranking.resolve_point(state.name, point)
            fresh += self.plan.build_cells(state.name, promoted, idx, bases)
        state.cells += fresh
        state.cells.sort(key=lambda cell: cell.idx)
        return fresh

    def mark_running(self, trial_id: str, *, running: bool) -> None:
        """Note whether a trial of this driver is running."""
        (self.running.add if running else self.running.discard)(trial_id)
        self.facts.version += 1

    def list_ready_cells(self) -> list[Cell]:
        """Return cells of scheduled studies that may train now, those that have started first."""
        cells = [
            cell
            for name in self.legs
            for cell in self.studies[name].cells
            if cell.error is None and isinstance(self.get_target_epoch(cell), int)
        ]
        return sorted(cells, key=lambda cell: not self.legs[cell.study].is_paused(cell))

    def list_open_searches(self) -> list[str]:
        """Return the asynchronous searches that can propose now."""
        return [name for name, proposer in self.proposers.items() if proposer.can_propose()]

    def propose_for_worker(self, name: str) -> list[Cell]:
        """Return the cells of one more proposal of an asynchronous search."""
        return self.proposers[name].propose_one()
