"""Proposals of a search study, as a pure function of the results before them.

Round r is proposed when every result of the rounds before it is known. Proposal i draws from
a sampler of its own, seeded by the study's key and i, and is told the earlier results in index
order; proposals of the same round are told as running (constant liar). So the sequence depends
on neither timing nor interruption nor the number of workers.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablate.designs import Search

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class Told:
    """An earlier proposal. value: mean objective over its seeds; None: it failed, or a
    scheduler stopped it, `reports` being its values by epoch until then.

    Both are told as pruned. TPE ranks these below every completed trial, those that got
    farther first, and one that failed, without a report, last.
    """

    params: dict[str, Any]
    value: float | None
    running: bool = False
    reports: Mapping[int, float] = field(default_factory=dict)


def propose(study: Search, key: str, earlier: Sequence[Told]) -> dict[str, Any]:
    """Values by dotted path of proposal number len(earlier).

    Args:
        key: identifies the study's base, space and sampler; part of the seed.
        earlier: all proposals before this one in index order, those of its own round running.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {path: axis.distribution() for path, axis in study.space.items()}
    sampler = _sampler(study, key, len(earlier))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna_study = optuna.create_study(direction="maximize", sampler=sampler)
        for told in earlier:
            optuna_study.add_trial(_frozen(study, told, distributions))
        drawn = optuna_study.ask(fixed_distributions=distributions).params
    return {path: axis.value(drawn[path]) for path, axis in study.space.items()}


def _sampler(study: Search, key: str, index: int) -> BaseSampler:
    import optuna

    text = f"{key}\x1f{index}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    if study.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=study.startup, multivariate=True, constant_liar=True
        )


def _frozen(study: Search, told: Told, distributions: dict[str, Any]) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    params = {path: study.space[path].drawn(value) for path, value in told.params.items()}
    if told.running:
        state, value = TrialState.RUNNING, None
    elif told.value is None:
        state, value = TrialState.PRUNED, None
    else:
        state, value = TrialState.COMPLETE, told.value
    return create_trial(
        state=state, value=value, params=params, distributions=distributions,
        intermediate_values=dict(told.reports),
    )  # fmt: skip
