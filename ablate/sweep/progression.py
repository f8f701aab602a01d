"""Determine which cells of a sweep are known, given the results in the ledger.

A fixed study's cells are known once the studies it is centred on are complete. A search adds cells
by proposals (`Proposer`), a race by seeds (`Racing`). `Progression.list_new_cells` is called at the
start and after every finished trial and never waits. Plans, the engine and `--cell` share it.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ablate.designs.base import SampledDesign, StudyBase
from ablate.designs.parts import NEUTRAL, NEUTRAL_POINT, Point
from ablate.ledger.columns import Row
from ablate.ledger.facts import Facts
from ablate.ledger.limits import MOST_INFEASIBLE
from ablate.plan.plan import Cell, Plan
from ablate.samplers import branches
from ablate.samplers.history import ObservedTrial
from ablate.samplers.sampling import propose
from ablate.samplers.space import Space
from ablate.schedulers.base import STOP
from ablate.schedulers.precision import PrecisionSeeds, evaluate_precision
from ablate.schedulers.racing import Race, Standing, evaluate_race
from ablate.spec.checks import COMPARING
from ablate.sweep.ranking import Ranking
from ablate.sweep.state import StudyState, SweepState, get_limits
from ablate.sweep.trial_costs import TrialCosts
from ablate.sweep.warm_start import fix_warm_trials, observe_warm_trials
from reports.tables.labels import is_baseline
from trainables.words.metrics import HALF_WIDTH, choose_smallest_effect, display_scale
from trainables.words.paths import find_at, get_at, has_path


def list_earlier_of_round(idx: int, infeasible: Collection[int], round_size: int) -> list[int]:
    """Return the proposals of the round of `idx` before it, whose results were not known then."""
    trained = [i for i in range(idx) if i not in infeasible]
    return trained[len(trained) - len(trained) % round_size :]


class Proposer:
    """Propose the trials of one search (`ablate/samplers/sampling.py`).

    Each proposal is recorded in the ledger before its trial runs. None is lost or repeated, and two
    drivers of one study share their proposals.
    """

    def __init__(self, sweep: "Progression", name: str, study: SampledDesign) -> None:
        self._sweep, self.name, self.study = sweep, name, study
        self._state = sweep.studies[name]
        self._neutral_params: dict[str, Any] | None = None  # the neutral cell as a proposal
        self._limits, self._costs = get_limits(study), TrialCosts(sweep.facts.ledger)

    def propose_ready(self) -> list[Cell]:
        """Return the cells of the next round once all earlier results are known.

        An asynchronous search returns the proposals that the ledger already holds.
        """
        # begin with the neutral cell (method switched off), once the inherited settings are known
        state, round_size = self._state, self.study.round
        neutral_cells = None if self._find_inherited() is None else self._list_neutral_once()
        if neutral_cells is None:  # wait for other studies
            return []
        if neutral_cells or self.is_exhausted:  # []: there are none, or no new ones
            return neutral_cells
        # restore recorded proposals of an asynchronous search (`round_size` is "asynchronous")
        proposals = self._sweep.facts.ledger.list_proposals(self.key)
        fresh: list[Cell] = []
        if isinstance(round_size, str):
            # `_build_proposal` lengthens `state.listed`
            while (idx := len(state.listed)) in proposals and not self.is_exhausted:
                fresh += self._build_proposal(idx, proposals[idx])
            return fresh
        # propose a round, in which the round's earlier proposals count as running; a proposal
        # beyond the limits is replaced
        if state.listed and not all(map(self._sweep.is_known, state.cells)):
            return []
        earlier, end = self.list_history({}), self.n_feasible + round_size
        while self.n_feasible < end and not self.is_exhausted:
            idx = len(state.listed)
            cells = self._build_proposal(idx, proposals.get(idx), earlier)
            trial = state.infeasible.get(idx) or ObservedTrial(cells[0].coords, None, running=True)
            earlier.append(replace(trial, concurrent=self._list_round_before(idx)))
            fresh += cells
        return fresh

    @property
    def n_feasible(self) -> int:
        """The number of proposals so far that are trained, and so count in the budget."""
        return len(self._state.listed) - len(self._state.infeasible)

    @property
    def is_exhausted(self) -> bool:
        """Whether the search makes no further proposals."""
        trials, n_infeasible = self.study.trials, len(self._state.infeasible)
        return self.n_feasible >= trials or n_infeasible >= MOST_INFEASIBLE * trials

    def can_propose(self) -> bool:
        """Return whether this search is asynchronous, not yet complete, and can propose now.

        If it has a neutral cell (the method switched off), it begins after that cell's result.
        """
        if not self.study.asynchronous or self._state.blocked or self._find_inherited() is None:
            return False
        neutral = self._neutral_cells
        if self._sweep.plan.spec.studies[self.name].find_baseline() is not None and not neutral:
            return False  # its neutral cell is not listed yet
        can_begin = all(map(self._sweep.is_known, neutral))
        return can_begin and not self.is_exhausted

    def propose_one(self) -> list[Cell]:
        """Return the cells of one more asynchronous proposal, based on the results so far.

        If it is beyond the limits, further ones follow, until one is not or the search ends.
        """
        cells: list[Cell] = []
        while not cells and not self.is_exhausted:
            proposals = self._sweep.facts.ledger.list_proposals(self.key)
            # "beside" of a recorded proposal lists those that had no result when it was made
            earlier = self.list_history({i: row["beside"] for i, row in proposals.items()})
            concurrent = tuple(  # as indices of proposals
                i - self._first_position for i, trial in enumerate(earlier) if trial.running
            )
            idx = len(self._state.listed)  # which another driver may have recorded
            cells = self._build_proposal(idx, proposals.get(idx), earlier, concurrent)
        return cells

    def _find_inherited(self) -> list[dict[str, Any]] | None:
        return self._sweep.ranking.resolve_inherited(self.name, ())

    @cached_property
    def key(self) -> str:
        """The key of this search's proposals in the ledger."""
        neutral = self._neutral_params
        highs = {path: axis.high for path, axis in self.space.items() if axis.high is not None}
        # The samplers of older versions saw no neutral cell with a step's 0.30000000000000004 on an
        # axis that ends at 0.3, so their keys are without it.
        if neutral and any(neutral.get(path, high) > high for path, high in highs.items()):
            neutral = None
        return self._sweep.plan.compute_study_key(self.name, self._find_inherited() or [], neutral)

    @cached_property
    def _centre(self) -> dict[str, Any]:
        """The configuration that the study is centred on."""
        config = self._sweep.plan.resolve_config(self.name, None, self._find_inherited() or [])
        return config.model_dump(mode="json")

    @cached_property
    def space(self) -> Space:
        """The axes; `box` narrows an axis to values near `_centre` and to the listed points."""
        points, narrowed = getattr(self.study, "first_points", ()), dict(self.study.space)
        for path, axis in narrowed.items():
            if axis.box is not None:
                values = [point[path] for point in points if path in point]
                narrowed[path] = axis.narrow(find_at(self._centre, path), values)
        return narrowed

    def _sample(self, idx: int, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Return the values of proposal `idx` by path: a point in the spec, or a sampled one."""
        study, first_points = self.study, getattr(self.study, "first_points", ())
        if any(axis.box is not None for axis in study.space.values()):  # use narrowed axes
            assert isinstance(study, StudyBase)
            study = study.model_copy(update={"space": self.space})
        values = propose(study, self.key, earlier)
        if idx >= len(first_points):
            return values
        # complete the listed point by values of the centre (the configuration that the study starts
        # from) or, where an axis excludes the centre's value, by sampled values
        for path, axis in self.space.items():
            if axis.is_possible(value := find_at(self._centre, path)):
                values[path] = value
            elif path not in values:
                values[path] = axis.draw_at(
                    random.Random(f"{self.key}\x1f{idx}\x1f{path}").random()
                )
        return branches.drop_inactive(self.space, values | first_points[idx])

    @cached_property
    def _warm(self) -> list[ObservedTrial]:
        """The trials of earlier sweeps from which the search starts."""
        sweep = self._sweep
        if not sweep.plan.warm_trials.get(self.name):
            return []
        return observe_warm_trials(sweep.plan, sweep.facts, self.name, self.space, self._centre)

    @property
    def _first_position(self) -> int:
        """The position of the first proposal in the history, after warm trials and neutral cell."""
        return len(self._warm) + (self._neutral_params is not None)

    @property
    def _neutral_cells(self) -> list[Cell]:
        return [cell for cell in self._state.cells if cell.cell == NEUTRAL]

    def _list_neutral_once(self) -> list[Cell] | None:
        """Return the neutral cell at the first call, no cell later; None while its baseline runs.

        The neutral cell has the method switched off, at the baseline study's best values. It runs
        along with the first round, which does not learn from it. An asynchronous search begins once
        the neutral cell has a result.
        """
        plan = self._sweep.plan
        if plan.spec.studies[self.name].find_baseline() is None or self._neutral_cells:
            return []
        inherited = self._sweep.ranking.resolve_inherited(self.name, NEUTRAL_POINT.levels)
        if inherited is None:
            return None
        space, merged = self.space, plan.build_layers(self.name, NEUTRAL_POINT, inherited).merged
        varied = {path: get_at(merged, path) for path in space if has_path(merged, path)}
        point = replace(NEUTRAL_POINT, coords=NEUTRAL_POINT.coords | varied)
        # its index follows those of all proposals
        last = self.study.trials * (1 if self._limits is None else 1 + MOST_INFEASIBLE)
        cells = plan.build_cells(self.name, point, last, inherited)
        if not any(cell.error for cell in cells):
            self._neutral_params = branches.find_proposal(space, cells[0].config)
        self._state.cells += cells
        return cells

    def _list_round_before(self, idx: int) -> tuple[int, ...]:
        """Return the positions, in the history, of the trials that run while `idx` is proposed.

        The history has trials of earlier sweeps, the neutral cell, then the proposals. The neutral
        cell runs in the first round. Proposals beyond the limits do not run.
        """
        infeasible, round_size = self._state.infeasible, self.study.round
        assert isinstance(round_size, int)
        running = list_earlier_of_round(idx, infeasible, round_size)
        is_first = idx - sum(i < idx for i in infeasible) < round_size
        neutral = range(len(self._warm), self._first_position) if is_first else ()
        return (*neutral, *(self._first_position + i for i in running))

    def _build_proposal(
        self,
        idx: int,
        row: Row | None,
        earlier: list[ObservedTrial] | None = None,
        concurrent: tuple[int, ...] | None = None,
    ) -> list[Cell]:
        """Return the cells of proposal `idx`, which are none if it is beyond the limits.

        Args:
            idx: number of the proposal.
            row: the proposal, if the ledger holds it; None to sample and record it.
            earlier: the history that the sampler learns from.
            concurrent: positions, in the history, of running trials; recorded with the proposal.
        """
        row = row or self._sample_proposal(idx, earlier or [], concurrent)
        self._state.listed.add(idx)
        if row["infeasible"]:
            self._leave_out(idx, row)
            return []
        cells = self._build_cells(row["params"], idx)
        self._state.cells += cells
        return cells

    def _build_cells(self, params: dict[str, Any], idx: int) -> list[Cell]:
        point, bases = Point(f"{idx:04d}", params, params, "space"), self._find_inherited() or []
        return self._sweep.plan.build_cells(self.name, point, idx, bases)

    def _sample_proposal(
        self, idx: int, earlier: list[ObservedTrial], concurrent: tuple[int, ...] | None
    ) -> Row:
        """Sample and record a new proposal, and whether it is beyond the limits; return its row.

        If another driver, perhaps of another version, was first, the row is that driver's.
        """
        params, ledger = self._sample(idx, earlier), self._sweep.facts.ledger
        cells = self._build_cells(params, idx)
        needs = self._estimate_excessive_needs(cells)
        if not self._sweep.record:
            return {"params": params, "infeasible": needs}
        with ledger.begin_transaction():
            config_hash = cells[0].config_hash
            if ledger.put_proposal(self.key, idx, params, config_hash, concurrent) and needs:
                self._record_infeasible(idx, needs)
            return ledger.list_proposals(self.key)[idx]

    def _record_infeasible(self, idx: int, needs: Mapping[str, float]) -> None:
        sweep_id, ledger = self._sweep.plan.sweep_id, self._sweep.facts.ledger
        ledger.put_infeasible(self.key, idx, sweep_id, self.name, needs)

    def _leave_out(self, idx: int, row: Row) -> None:
        """Leave out a proposal beyond the limits, also one that another sweep has recorded."""
        state, needs = self._state, row["infeasible"]
        if self._sweep.record:
            self._record_infeasible(idx, needs)
        assert self._limits is not None
        excess = self._limits.measure_excess(needs)
        state.infeasible[idx] = ObservedTrial(row["params"], None, excess=excess)
        if self.is_exhausted:  # the search ends with fewer cells
            state.size, state.short = len(state.cells), True
            fault = f"{len(state.infeasible)} proposals were beyond the limits, so the search ended"
            state.blocked = f"{fault}. Widen `limits`, or narrow `space`"

    def _estimate_excessive_needs(self, cells: list[Cell]) -> dict[str, float]:
        """Return what a new proposal would need beyond the limits; {} if it may run.

        A proposal whose trials have a record runs, since the record decides.
        """
        facts = self._sweep.facts
        is_recorded = all(facts[cell.trial_id].status in ("done", "failed") for cell in cells)
        if self._limits is None or cells[0].error is not None or is_recorded:
            return {}
        return self._limits.select_excessive(self._costs.estimate_needs(cells[0].config))

    def list_history(self, concurrent: Mapping[int, tuple[int, ...]]) -> list[ObservedTrial]:
        """Return the results of earlier sweeps, of the neutral cell, and of all proposals so far.

        Args:
            concurrent: index of an asynchronous proposal → indices of those that ran at that time.
        """
        earlier, neutral, round_size = list(self._warm), self._neutral_params, self.study.round
        if neutral is not None:
            first = replace(self._observe_cells(self._neutral_cells), params=neutral)
            # In the first round the cell counts as running, so that proposals repeat exactly.
            if isinstance(round_size, int) and not self.n_feasible:
                first = ObservedTrial(neutral, None, running=True)
            earlier.append(first)
        observed = {
            idx: self._observe_cells(cells)
            for idx, cells in self._state.group_by_index().items()
            if cells[0].cell != NEUTRAL
        }
        for idx, trial in sorted((observed | self._state.infeasible).items()):
            if isinstance(round_size, int):  # the trials before it in its round were running
                waiting = self._list_round_before(idx)
            else:  # asynchronous: those in `concurrent` were running
                waiting = tuple(
                    position + self._first_position for position in concurrent.get(idx, ())
                )
            earlier.append(replace(trial, concurrent=waiting))
        return earlier

    def _observe_cells(self, cells: list[Cell]) -> ObservedTrial:
        """Return a proposal's mean objectives or, if it has none, its best values by epoch."""
        params = cells[0].coords
        if not all(map(self._sweep.is_known, cells)):
            return ObservedTrial(params, None, running=True)
        metrics = [objective.metric for objective in self._sweep.plan.list_objectives(self.name)]
        values = self._sweep.ranking.average_metrics(cells, metrics)
        trial = ObservedTrial(params, values, excess=self._sweep.measure_excess(cells))
        scheduled = self._sweep.scheduled_studies.get(self.name)
        if values is not None or trial.is_infeasible or scheduled is None:
            return trial
        return replace(trial, reports=scheduled.list_best_by_epoch(cells[0].idx))


class Racing:
    """Run a race in one study: list repeats seed by seed and drop cells that fall behind."""

    def __init__(self, sweep: "Progression", name: str, race: Race) -> None:
        self._sweep, self.name, self.race = sweep, name, race
        self.metric = sweep.plan.spec.objective  # by which cells are compared
        # idx → seed → cells, one for each split
        self._cells_by_seed: dict[int, dict[int, list[Cell]]] = {}
        self._listed: set[tuple[int, int]] = set()  # (idx, seed) of the cells listed so far

    def list_new_cells(self, state: StudyState) -> list[Cell]:
        """Return the cells that the race adds now; set the study's size and dropped cells."""
        # build the cells of all points and seeds, once the settings that they inherit are known
        plan, study = self._sweep.plan, self._sweep.plan.spec.studies[self.name]
        if not self._cells_by_seed:
            bases = [
                self._sweep.ranking.resolve_inherited(self.name, point.levels)
                for point in study.all_points
            ]
            if any(values is None for values in bases) and not state.short:  # wait for values
                return []
            for idx, (point, values) in enumerate(zip(study.all_points, bases, strict=True)):
                if values is None:  # the cell that the point trains again does not exist
                    continue
                promoted = self._sweep.ranking.resolve_point(self.name, point)
                cells = plan.build_cells(self.name, promoted, idx, values)  # split by split
                count = len(plan.list_seeds(self.name))
                self._cells_by_seed[idx] = {
                    seed: cells[i::count] for i, seed in enumerate(plan.list_seeds(self.name))
                }
                state.listed.add(idx)
        # drop cells that are clearly worse by the results so far, and count the cells to come
        seeds = plan.list_seeds(self.name)
        standing = self._evaluate(seeds)
        state.dropped = standing.dropped
        cell_count = study.size - len(standing.dropped)
        seed_count = self._count_seeds(seeds, standing) * len(plan.list_folds(self.name))
        state.size = sum(standing.dropped.values()) + seed_count * cell_count
        # list the next seeds of the remaining cells
        fresh = [
            cell
            for idx in standing.alive
            for seed in seeds[: standing.seeds]
            if (idx, seed) not in self._listed
            for cell in self._cells_by_seed[idx][seed]
        ]
        self._listed |= {(cell.idx, cell.seed) for cell in fresh}
        return fresh

    def _evaluate(self, seeds: Sequence[int]) -> Standing:
        return evaluate_race(
            self.race, seeds, {idx: self._collect_values(idx)[None] for idx in self._cells_by_seed}
        )

    def _count_seeds(self, seeds: Sequence[int], standing: Standing) -> int:
        return len(seeds)

    def _collect_values(self, idx: int) -> dict[int | None, dict[int, float | None]]:
        """Map each split, and each seed at which cell `idx` is settled, to its metric.

        Without splits, the only split is None. The metric is None if the trial failed.
        """
        values: dict[int | None, dict[int, float | None]] = {
            split: {} for split in self._sweep.plan.list_folds(self.name)
        }
        for seed, cells in self._cells_by_seed[idx].items():
            for cell in cells:
                if (idx, seed) in self._listed and self._sweep.is_settled(cell):
                    means = self._sweep.ranking.average_metrics([cell], [self.metric])
                    values[cell.fold][seed] = None if means is None else means[0]
        return values


def find_baseline_index(plan: Plan, name: str) -> int:
    """Return the index of the first cell that a table of a study sets others beside, or 0."""
    tables = [t for t in plan.spec.report.tables if t.study == name and t.kind in COMPARING]
    cells = [(point.cell, point.coords) for point in plan.spec.studies[name].all_points]
    return next((i for t in tables for i, cell in enumerate(cells) if is_baseline(t, *cell)), 0)


class Staging(Racing):
    """Run a study whose first stage determines its number of seeds (`schedulers/precision.py`)."""

    def __init__(self, sweep: "Progression", name: str, precision: PrecisionSeeds) -> None:
        """Determine the wanted half-width of the intervals, and the baseline's index."""
        super().__init__(sweep, name, Race())  # default options, never read
        self.precision = precision
        plan = sweep.plan
        self.metric = plan.find_primary_metric(name)
        smallest_effect = choose_smallest_effect(plan.spec.report.smallest, self.metric)
        wanted = precision.precision or HALF_WIDTH * smallest_effect  # in the unit shown
        self.half_width = wanted / display_scale(self.metric)
        self.baseline = find_baseline_index(plan, name)

    def _evaluate(self, seeds: Sequence[int]) -> Standing:
        values = {idx: self._collect_values(idx) for idx in self._cells_by_seed}
        if self.baseline not in values:
            return Standing(tuple(values), self.precision.first)
        report = self._sweep.plan.spec.report
        return evaluate_precision(
            self.precision,
            values,
            self.baseline,
            self.half_width,
            rule=report.rule,
            looks=report.looks or 1,
        )

    def _count_seeds(self, seeds: Sequence[int], standing: Standing) -> int:
        """Return each cell's number of seeds; before the first stage's end, the upper limit."""
        stage = range(self.precision.first)
        is_complete = all(
            all((idx, seed) in self._listed for seed in stage)
            and all(len(row) >= len(stage) for row in self._collect_values(idx).values())
            for idx in self._cells_by_seed
        )
        return standing.seeds if is_complete else len(seeds)


class Progression(SweepState):
    """The state of a plan's studies, which lists new cells as results arrive."""

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        """Create the parts that list cells: a race or proposer for each study that has one."""
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
                fix_warm_trials(plan, facts, name, record=record)
                self.proposers[name] = Proposer(self, name, sampled)

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
