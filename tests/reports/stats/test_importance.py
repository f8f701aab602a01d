"""Importances: the planted parameter is found, the evaluator named, conditionals told."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from reports.stats.importance import compute_importances

SPACE: dict[str, dict[str, Any]] = {
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "depth": {"low": 1, "high": 8, "int": True},
    "kind": {"choice": ["a", [1, 2], "c"]},
    "idle": {"low": 0.0, "high": 1.0},
}


def trials(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[float]]:
    """Values that follow the learning rate, hardly the depth, and nothing else."""
    rng = np.random.default_rng(seed)
    params = [
        {
            "lr": float(10 ** rng.uniform(-4, -1)),
            "depth": int(rng.integers(1, 9)),
            "kind": SPACE["kind"]["choice"][rng.integers(3)],
            "idle": float(rng.random()),
        }
        for _ in range(n)
    ]
    return params, [-((math.log10(p["lr"]) + 2.5) ** 2) + 0.02 * p["depth"] for p in params]


@pytest.mark.parametrize("evaluator", ["ped_anova", pytest.param("fanova", marks=pytest.mark.slow)])
def test_what_matters_comes_first(evaluator: Any) -> None:
    found = compute_importances(*trials(120), SPACE, evaluator=evaluator)
    assert found is not None and next(iter(found.shares)) == "lr"
    assert sum(found.shares.values()) == pytest.approx(1.0) and found.shares["lr"] > 0.5
    assert list(found.shares.values()) == sorted(found.shares.values(), reverse=True)
    assert found.n == 120 and found.warnings == () and found.conditional == ()
    assert found == compute_importances(*trials(120), SPACE, evaluator=evaluator)
    told = (
        "PED-ANOVA of the best 12 of 120 trials"
        if evaluator == "ped_anova"
        else "fANOVA of 120 trials"
    )
    assert found.evaluator == told


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("evaluator", ["ped_anova", pytest.param("fanova", marks=pytest.mark.slow)])
def test_shares_are_optuna_s_of_the_study_itself(evaluator: Any) -> None:
    space = {k: v for k, v in SPACE.items() if k != "kind"}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1))

    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        return -abs(math.log10(lr) + 2) + 0.1 * trial.suggest_int(
            "depth", 1, 8
        ) * trial.suggest_float("idle", 0, 1)

    study.optimize(objective, n_trials=60)
    judge: Any = (
        optuna.importance.PedAnovaImportanceEvaluator()
        if evaluator == "ped_anova"
        else optuna.importance.FanovaImportanceEvaluator(seed=0)
    )
    told = [(t.params, t.value) for t in study.trials]
    found = compute_importances(
        [p for p, _ in told], [v or 0.0 for _, v in told], space, evaluator=evaluator
    )
    assert found is not None
    assert found.shares == pytest.approx(
        optuna.importance.get_param_importances(study, evaluator=judge)
    )


def test_few_trials_have_no_importances() -> None:
    found = compute_importances(*trials(50), SPACE)
    assert found is not None
    assert found.evaluator == "PED-ANOVA of the best 5 of 50 trials" and not found.warnings
    params, values = trials(50)
    assert compute_importances(params, [*values[:49], math.nan], SPACE) is None
    with_nan = compute_importances([*params, {}], [*values, math.nan], SPACE)
    assert with_nan is not None and with_nan.n == 50


def test_conditional_parameters_are_judged_or_named() -> None:
    params, values = trials(100)
    for p in params:
        if p["kind"] != "a":
            del p["idle"]
    ped = compute_importances(params, values, SPACE)
    assert ped is not None and ped.conditional == ("idle",) and ped.dropped == ()
    assert "idle" in ped.shares
    fanova = compute_importances(params, values, SPACE, evaluator="fanova")
    assert fanova is not None and fanova.dropped == ("idle",) and "idle" not in fanova.shares
    assert "cannot judge conditional" in fanova.warnings[-1]


def test_equal_values_tell_nothing() -> None:
    flat = compute_importances(trials(50)[0], [0.5] * 50, SPACE)
    assert flat is not None and set(flat.shares.values()) == {0.0}
    assert "same value" in flat.warnings[-1]


def test_optuna_is_imported_when_asked_for() -> None:
    code = "import sys, reports.stats; assert 'optuna' not in sys.modules"
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)
