"""Warm starts: a search learns from finished trials of earlier sweeps in the same ledger.

    tune: {design: search, warm_start: my-first, …}

Trials of the sweep `my-first` count if they differ from the search's own trials only in axes of its
space and in values that it takes from other studies, and have today's REVISIONs and data. Their
list is recorded when a run first plans the search, so that the same proposals come after an
interruption, whatever is trained meanwhile. Their code is checked as that of known trials.
The sampler sees those of them that fit the values taken. None is trained again, and they count in
the tuning budgets of all rows behind which the search stands.
"""

from collections.abc import Mapping
from typing import Any

from ablate.ledger.facts import Facts
from ablate.ledger.limits import read_needs
from ablate.ledger.queries import find_sweep, list_sweep_trials
from ablate.plan.inheritance import list_inherited_paths
from ablate.plan.plan import Plan
from ablate.samplers import branches
from ablate.samplers.history import ObservedTrial
from ablate.samplers.space import Space
from ablate.sweep.state import get_limits
from trainables.core.identity import compute_config_hash
from trainables.trial import TrialConfig
from trainables.words.metrics import MetricName
from trainables.words.paths import flatten_paths, is_path_within


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
        params = branches.find_proposal(space, rows[0]["config"])
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
