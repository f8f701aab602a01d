"""Proposals of a search study, as a pure function of the results before them.

Round r is proposed when every result of the rounds before it is known. Proposal i draws from
a sampler of its own, seeded by the study's key and i, and is told the earlier results in index
order; proposals of the same round are told as running. So the sequence depends on neither
timing nor interruption nor the number of workers. In the asynchronous mode what is known
when a proposal is made depends on timing; given that, the proposal is the same function.

    tpe           Optuna's, multivariate, with a constant liar for what is running; several
                  objectives, and groups of axes where branches are conditional
    gp            Optuna's Gaussian process; a failure counts as the worst value so far
    cmaes         ablate/evolution.py
    nsga2         Optuna's; a generation is `population` results
    quasi_random  ablate/quasi_random.py
    random        independent draws
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ablate import branches, evolution, quasi_random
from ablate.searching import Search
from ablate.space import Axis
from ablate.told import Told, generations, seed

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["Told", "propose"]

NSGA2_POPULATION = 20
# Samplers that model every axis at once: where one does not exist, it stands at a default.
WHOLE = ("gp", "nsga2")
HISTORY_FREE = ("random", "quasi_random")


def propose(study: Search, key: str, earlier: Sequence[Told]) -> dict[str, Any]:
    """Values by dotted path of the active axes of proposal number len(earlier).

    Args:
        key: identifies the study's base, space and sampler; part of the seed.
        earlier: all proposals before this one in index order, those without a result running.
    """
    if study.sampler == "quasi_random":
        return quasi_random.point(study.space, key, len(earlier))
    if study.sampler == "cmaes":
        return evolution.propose(
            study.space, key, earlier, study.population, study.directions[0] == "maximize"
        )
    return _by_optuna(study, key, earlier)


def _by_optuna(study: Search, key: str, earlier: Sequence[Told]) -> dict[str, Any]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made = optuna.create_study(
            directions=list(study.directions), sampler=_sampler(study, key, len(earlier))
        )
        if study.sampler not in HISTORY_FREE:
            for told in _history(study, key, earlier):
                made.add_trial(told)
        return _asked(study, made)


def _asked(study: Search, made: Study) -> dict[str, Any]:
    """Suggests axis by axis, each after those it depends on."""
    trial = made.ask()
    drawn: dict[str, Any] = {}
    for path in branches.order(study.space):
        if study.sampler in WHOLE or branches.active(study.space, path, drawn):
            drawn[path] = _suggested(trial, path, study.space[path])
    return branches.pruned(study.space, drawn)


def _suggested(trial: Any, path: str, axis: Axis) -> Any:
    if axis.choice is not None:
        return axis.value(trial.suggest_categorical(path, list(range(len(axis.choice)))))
    found: Any = axis.distribution()
    suggest = trial.suggest_int if axis.whole else trial.suggest_float
    return suggest(path, found.low, found.high, step=found.step, log=found.log)


def _sampler(study: Search, key: str, index: int) -> BaseSampler:
    import optuna

    drawn = seed(key, index)
    if study.sampler == "random":
        return optuna.samplers.RandomSampler(seed=drawn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if study.sampler == "gp":
            return optuna.samplers.GPSampler(seed=drawn, n_startup_trials=study.startup)
        if study.sampler == "nsga2":
            size = study.population or NSGA2_POPULATION
            return optuna.samplers.NSGAIISampler(seed=drawn, population_size=size)
        return optuna.samplers.TPESampler(
            seed=drawn, n_startup_trials=study.startup, multivariate=True, constant_liar=True,
            group=branches.conditional(study.space)
        )  # fmt: skip


def _history(study: Search, key: str, earlier: Sequence[Told]) -> list[FrozenTrial]:
    """The earlier proposals as the sampler is to see them."""
    attributes: list[dict[str, Any]] = [{} for _ in earlier]
    if study.sampler == "nsga2":
        from optuna.samplers import NSGAIISampler

        size = study.population or NSGA2_POPULATION
        made = generations(size, earlier, lambda told: told.values is not None)
        name = NSGAIISampler._get_generation_key()
        attributes = [{name: generation} for generation in made[:-1]]
    worst = _worst(study, earlier) if study.sampler == "gp" else None
    found = []
    for index, (told, marks) in enumerate(zip(earlier, attributes, strict=True)):
        whole = study.sampler in WHOLE
        params = _completed(study, key, index, told.params) if whole else told.params
        if worst is not None and told.values is None and not told.running:
            told = replace(told, value=worst)  # noqa: PLW2901
        found.append(_frozen(study, told, params, marks))
    return found


def _worst(study: Search, earlier: Sequence[Told]) -> tuple[float, ...] | None:
    """The worst of each objective so far; None while there is no result."""
    known = [told.values for told in earlier if told.values is not None and not told.running]
    if not known:
        return None
    return tuple(
        min(column) if direction == "maximize" else max(column)
        for direction, column in zip(study.directions, zip(*known, strict=True), strict=True)
    )


def _completed(study: Search, key: str, index: int, params: Mapping[str, Any]) -> dict[str, Any]:
    """All axes: one that did not exist stands in the middle for a model, and anywhere for
    genes, among which it must not take over."""
    draw = random.Random(f"{key}\x1f{index}\x1fabsent")
    found = {}
    for path, axis in study.space.items():
        place = draw.random()
        absent = axis.at(0.5 if study.sampler == "gp" else place)
        found[path] = params.get(path, absent)
    return found


def _frozen(
    study: Search, told: Told, params: Mapping[str, Any], marks: dict[str, Any]
) -> FrozenTrial:
    """TPE ranks pruned trials below all others, those that got farther first. It cannot tell
    with several objectives, whose failures it then leaves out."""
    from optuna.trial import TrialState, create_trial

    several = len(study.directions) > 1
    reports: dict[int, float] = {}
    state, values = TrialState.COMPLETE, told.values
    if told.running:
        state, values = TrialState.RUNNING, None
    elif values is None:
        state = TrialState.FAIL if several else TrialState.PRUNED
        reports = {} if several else dict(told.reports)
    return create_trial(
        state=state, values=values, intermediate_values=reports, system_attrs=marks,
        params={path: study.space[path].drawn(value) for path, value in params.items()},
        distributions={path: study.space[path].distribution() for path in params},
    )  # fmt: skip
