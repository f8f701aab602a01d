"""Samplers end where Optuna's own do, at equal budgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna import samplers
from scipy import stats

from ablate.samplers.space import Axis
from tests.ablate.samplers.searches import NUMBERS, bowl, driven, study

SEEDS = 20
MODEL = {"multivariate": True, "constant_liar": True}


def ours(sampler: str, budget: int, number: int) -> float:
    made = study(NUMBERS, sampler=sampler, round=4, startup=8)
    return -max(t.value for t in driven(made, f"regret {number}", budget, bowl))  # type: ignore[type-var]


def optunas(sampler: Any, budget: int) -> float:
    """Plain Optuna at the same budget and parallelism: 4 asked, then 4 told."""
    distributions = {k: Axis.model_validate(v).to_optuna_distribution() for k, v in NUMBERS.items()}
    theirs = optuna.create_study(direction="maximize", sampler=sampler)
    for start in range(0, budget, 4):
        trials = [theirs.ask(distributions) for _ in range(min(4, budget - start))]
        for trial in trials:
            theirs.tell(trial, bowl(trial.params))
    return -theirs.best_value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("sampler", "budget", "make"),
    [
        ("tpe", 48, lambda s: samplers.TPESampler(seed=s, n_startup_trials=8, **MODEL)),
        ("random", 48, lambda s: samplers.RandomSampler(seed=s)),
        ("quasi_random", 48, lambda s: samplers.QMCSampler(seed=s, scramble=True)),
        ("cmaes", 120, lambda s: samplers.CmaEsSampler(seed=s)),
        ("gp", 24, lambda s: samplers.GPSampler(seed=s, n_startup_trials=8)),
    ],
)
def test_regret_equals_plain_optunas(sampler: str, budget: int, make: Callable[[int], Any]) -> None:
    """Same budget, 20 seeds each: no worse and no better than by chance. Printed."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    mine = [ours(sampler, budget, number) for number in range(SEEDS)]
    theirs = [optunas(make(number), budget) for number in range(SEEDS)]
    p = stats.mannwhitneyu(mine, theirs).pvalue
    print(
        f"{sampler}: median regret {np.median(mine):.4g}, Optuna's {np.median(theirs):.4g}, "
        f"p = {p:.2f}"
    )
    assert p > 0.01
    if sampler in ("tpe", "cmaes", "gp"):
        chance = [ours("random", budget, number) for number in range(SEEDS)]
        assert np.median(mine) < np.median(chance) / 2, "a model helps here"
