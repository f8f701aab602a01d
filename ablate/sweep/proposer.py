"""Propose the trials of a search, and let it learn from finished trials of earlier sweeps.

Warm starts: a search learns from finished trials of earlier sweeps in the same ledger.

    tune: {design: search, warm_start: my-first, …}

Trials of the sweep `my-first` count if they differ from the search's own trials only in axes of its
space and in values that it takes from other studies, and have today's REVISIONs and data. Their
list is recorded when a run first plans the search, so that the same proposals come after an
interruption, whatever is trained meanwhile. Their code is checked as that of known trials.
The sampler sees those of them that fit the values taken. None is trained again, and they count in
the tuning budgets of all rows behind which the search stands.
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
from ablate.ledger.limits import MOST_INFEASIBLE, read_needs
from ablate.ledger.queries import find_sweep, list_sweep_trials
from ablate.plan.inheritance import list_inherited_paths
from ablate.plan.plan import Cell, Plan
from ablate.search.sampling import ObservedTrial, propose
from ablate.search.space import Space, drop_inactive, find_proposal
from ablate.sweep.estimates import TrialCosts
from ablate.sweep.ranking import StudyRanking
from ablate.sweep.state import SweepState, get_limits
from trainables.core.identity import compute_config_hash
from trainables.trial import TrialConfig
from trainables.words.metrics import MetricName
from trainables.words.paths import find_at, flatten_paths, get_at, has_path, is_path_within


def list_earlier_of_round(idx: int, infeasible: Collection[int], round_size: int) -> list[int]:
    """Return the proposals of the round of `idx` before it, whose results were not known then."""
    trained = [i for i in range(idx) if i not in infeasible]
    return trained[len(trained) - len(trained) % round_size :]


class Proposer:
    """Propose the trials of one search (`ablate/search/sampling.py`).

    Each proposal is recorded in the ledger before its trial runs. None is lost or repeated, and two
    drivers of one study share their proposals.
    """

    def __init__(
        self, sweep: SweepState, ranking: StudyRanking, name: str, study: SampledDesign
    ) -> None:
        self._sweep, self._ranking, self.name, self.study = sweep, ranking, name, study
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
        return self._ranking.resolve_inherited(self.name, ())

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
        return drop_inactive(self.space, values | first_points[idx])

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
        inherited = self._ranking.resolve_inherited(self.name, NEUTRAL_POINT.levels)
        if inherited is None:
            return None
        space, merged = self.space, plan.build_layers(self.name, NEUTRAL_POINT, inherited).merged
        varied = {path: get_at(merged, path) for path in space if has_path(merged, path)}
        point = replace(NEUTRAL_POINT, coords=NEUTRAL_POINT.coords | varied)
        # its index follows those of all proposals
        last = self.study.trials * (1 if self._limits is None else 1 + MOST_INFEASIBLE)
        cells = plan.build_cells(self.name, point, last, inherited)
        if not any(cell.error for cell in cells):
            self._neutral_params = find_proposal(space, cells[0].config)
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
        values = self._ranking.average_metrics(cells, metrics)
        trial = ObservedTrial(params, values, excess=self._sweep.measure_excess(cells))
        scheduled = self._sweep.scheduled_studies.get(self.name)
        if values is not None or trial.is_infeasible or scheduled is None:
            return trial
        return replace(trial, reports=scheduled.list_best_by_epoch(cells[0].idx))


# ---------------------------------------------------------------- warm starts


def fix_warm_trials(plan: Plan, facts: Facts, name: str, *, record: bool) -> None:
    """Set in the plan the finished trials of an earlier sweep that a search learns from.

    The list is read from the ledger or, the first time, compiled and (if `record`) recorded.
    """
    earlier_sweep = getattr(plan.spec.studies[name], "warm_start", None)
    if earlier_sweep is None:
        return
    ledger = facts.ledger
    trials = ledger.get_warm_start(plan.sweep_id, name)
    if trials is None:
        where = plan.loaded.source.locate(f"studies.{name}.warm_start")
        rows = list_sweep_trials(ledger, find_sweep(ledger, earlier_sweep, where))
        config = plan.resolve_config(name, None, plan.find_example(name))
        own = flatten_paths(config.model_dump(mode="json"))
        # a trial's settings may differ from the search's only in axes and inherited settings
        free = [*plan.spec.studies[name].paths, *list_inherited_paths(plan.spec.studies, name)]
        trials = [
            row["trial_id"]
            for row in rows
            if row["status"] == "done" and _is_comparable(plan, row, own, free)
        ]
        if record:
            ledger.put_warm_start(plan.sweep_id, name, trials)
    plan.warm_trials[name] = tuple(trials)
    # note trials that other code made, also with --force, by which none of these is trained again
    known = Facts(ledger, facts.evaluator, retry_failed=False)
    known.sources, known.differing = facts.sources, facts.differing
    for trial_id in trials:
        known.refresh(trial_id)


def observe_warm_trials(
    plan: Plan, facts: Facts, name: str, space: Space, centre: Mapping[str, Any]
) -> list[ObservedTrial]:
    """Return the warm-start trials that fit a search's space and fixed values, for its sampler.

    Trials of one configuration are one observation, the mean over their seeds.
    """
    # group the trials that equal the centre (start configuration) in all paths but the axes
    own, groups = flatten_paths(centre), dict[str, list[dict[str, Any]]]()
    limits = get_limits(plan.spec.studies[name])
    for trial_id in plan.warm_trials.get(name, ()):
        row = facts.ledger.get_trial(trial_id)
        if row is not None and _is_comparable(plan, row, own, [*space]):
            groups.setdefault(row["config_hash"], []).append(row)
    observed = []
    metrics = [MetricName.parse(objective.metric) for objective in plan.list_objectives(name)]
    for rows in groups.values():
        params = find_proposal(space, rows[0]["config"])
        # from the ledger, because with --force no fact counts in this run
        ids = [row["trial_id"] for row in rows]
        evaluations = [facts.ledger.get_evaluations(each, facts.evaluator) for each in ids]
        # a column for each objective, with a value for each seed
        values = [[e.get(split, {}).get(metric) for e in evaluations] for split, metric in metrics]
        if params is not None and all(value is not None for column in values for value in column):
            means = tuple(sum(column) / len(column) for column in values)  # type: ignore[arg-type]
            needs = map(read_needs, rows)
            excess = None if limits is None else max(map(limits.measure_excess, needs))
            observed.append(ObservedTrial(params, means, excess=excess))
    return observed


def _is_comparable(
    plan: Plan, row: Mapping[str, Any], own: Mapping[str, Any], free: list[str]
) -> bool:
    """Return whether a trial differs from `own` only in `free` paths, and its hash is today's."""
    other = flatten_paths(row["config"])
    changed = [path for path in {*other, *own} if other.get(path) != own.get(path)]
    if any(not is_path_within(path, *free) for path in changed):
        return False
    config = TrialConfig.model_validate(row["config"])
    return bool(row["config_hash"] == compute_config_hash(config, plan.get_fingerprint(config)))
