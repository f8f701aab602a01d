"""Searches through the whole engine, with Ray: their quality, and the asynchronous mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from scipy import stats

from ablate import api
from ablate.engine.driver import run_plan
from ablate.ledger.ledger import Ledger
from ablate.ledger.results import build_result_rows
from ablate.samplers.space import Axis
from tests.ablate import specs, synthetic
from tests.faults.driver import options

SEEDS, BUDGET = 20, 28


def swept(given: dict[str, Any], folder: Path) -> tuple[Any, list[dict[str, Any]]]:
    plan, settings = api.prepare(given, options(str(folder)))
    outcome = run_plan(plan, settings)
    assert outcome.is_finished and not outcome.lost
    with Ledger(settings.ledger) as ledger:
        return plan, build_result_rows(ledger, plan.sweep_id)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_regret_through_the_engine_equals_plain_optunas(tmp_path: Path) -> None:
    """20 searches of rounds of 4 in one sweep; printed."""
    studies = {
        f"s{i}": {
            "design": "search",
            "trials": BUDGET,
            "round": 4,
            "startup": 8,
            "seeds": 1,
            "trial": {"embedding": {"dim": 2 + i}},
            "space": specs.SPACE,
        }
        for i in range(SEEDS)
    }
    given = {
        "name": "regret",
        "resources": {"cpus": 0.5, "gpus": 0},
        "trial": {"training.epochs": 1, "method": {"name": "ddml"}},
        "studies": studies,
    }
    _, rows = swept(given, tmp_path)
    assert len(rows) == SEEDS * BUDGET
    mine = []
    for i in range(SEEDS):
        best = max(row["val/map_at_r"] for row in rows if row["study"] == f"s{i}")
        mine.append(0.5 + (2 + i) / 1e5 - best)
    theirs = [_optunas(seed) for seed in range(SEEDS)]
    p = stats.mannwhitneyu(mine, theirs).pvalue
    print(f"median regret {np.median(mine):.2g}, Optuna's {np.median(theirs):.2g}, p = {p:.2f}")
    assert p > 0.01


def _optunas(seed: int) -> float:
    """Plain Optuna with as much at once: 4 are proposed before the first of them is told.

    `ask` without distributions would draw at the first `suggest`, which is after earlier ones of
    the four were told: a search of one at a time, which does better on this objective.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=8, multivariate=True, constant_liar=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {
        path: Axis.model_validate(node).to_optuna_distribution()
        for path, node in specs.SPACE.items()
    }
    for _ in range(BUDGET // 4):
        for trial in [study.ask(space) for _ in range(4)]:
            config = {
                "optimizer": {"lr": trial.params["optimizer.lr"]},
                "method": {"alpha": trial.params["method.alpha"]},
                "embedding": {"dim": 0},
            }
            study.tell(trial, synthetic.score(config, 0))
    return 0.5 - float(study.best_value)
