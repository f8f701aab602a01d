"""Promotion: a study's best cells trained again at a higher fidelity; `rank` of `around`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ablate.backends.this_process import find_cell
from ablate.cli.run import describe_ending
from ablate.engine.driver import _build_outcome
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.engine.work_estimate import preview_plan
from ablate.plan.plan import Plan
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, run, stopped_often, table

RATES = [1e-4, 1e-3, 1e-2, 3e-3, 3e-4]  # score −(log10 lr + 3)² / 10: ranked 1, (3, 4), (0, 2)


def plan(studies: dict[str, Any], **more: Any) -> Plan:
    trial = {"training.epochs": 3, "method": {"name": "ddml"}}
    return specs.plan({"name": "rungs", "trial": trial, "studies": studies, **more})


def grid(values: list[Any] = RATES, path: str = "optimizer.lr", **more: Any) -> dict[str, Any]:
    return {"design": "grid", "grid": {path: values}, "trial": {"training.epochs": 1}, **more}


def promote(of: str = "low", **more: Any) -> dict[str, Any]:
    return {"design": "promote", "of": of, **more}


def cells_of(made: JobQueue, study: str) -> list[Any]:
    return made.progression.studies[study].cells


def rates_of(made: JobQueue, study: str) -> list[float]:
    return [cell.config["optimizer"]["lr"] for cell in cells_of(made, study)]


# --------------------------------------------------------------------------- order


def test_the_best_cells_in_their_order_with_the_trial_over_them(tmp_path: Path) -> None:
    again = {"training.epochs": 2, "embedding": {"dim": 64}}
    made = run(
        plan({"low": grid(seeds=2), "high": promote(best=2, trial=again, seeds=3)}), tmp_path
    )
    cells = cells_of(made, "high")
    assert [(c.cell, c.idx, c.seed) for c in cells] == [
        (f"rank={rank}", rank - 1, seed) for rank in (1, 2) for seed in range(3)
    ]
    assert rates_of(made, "high")[::3] == [1e-3, 3e-3]
    assert cells[3].coords == {"rank": 2, "source": "optimizer.lr=0.003", "optimizer.lr": 3e-3}
    assert {c.config["training"]["epochs"] for c in cells} == {2}
    assert {c.config["embedding"]["dim"] for c in cells} == {64}
    assert made.progression.studies["high"].complete
    assert all(row["status"] == "done" for row in table(made))
    assert find_cell(made.progression, "high/rank=2@1").seed == 1


def test_ties_go_to_the_lower_index_and_share_counts_cells(tmp_path: Path) -> None:
    low = grid([{"name": "ddml", "beta": b} for b in (0.5, 0.4, 0.3, 0.2)], "method")
    studies = {"low": low, "some": promote(share=0.3), "all": promote(share=1)}  # all score alike
    made = run(plan(studies), tmp_path)
    assert [c.config["method"]["beta"] for c in cells_of(made, "some")] == [0.5, 0.4]
    assert [c.config["method"]["beta"] for c in cells_of(made, "all")] == [0.5, 0.4, 0.3, 0.2]


# -------------------------------------------------------------------------- chains


@pytest.mark.parametrize("seed", range(2))
def test_a_chain_is_successive_halving_with_a_stated_budget(tmp_path: Path, seed: int) -> None:
    dims = list(range(64, 64 + 27))
    random.Random(seed).shuffle(dims)
    studies = {
        "low": grid(dims, "embedding.dim"),
        "mid": promote("low", best=9, trial={"training.epochs": 3}),
        "high": promote("mid", share=0.333, trial={"training.epochs": 9}),
        "last": {"design": "grid", "around": {"best_of": "high"}, "grid": {"method.beta": [0.1]}},
    }
    made_plan = plan(studies)
    made = run(made_plan, tmp_path, at_once=3, choose=random.Random(seed).choice)
    best = made.progression.ranking.rank_study("high")[0]
    assert best.values == {"embedding.dim": max(dims)}
    assert cells_of(made, "last")[0].config["embedding"]["dim"] == max(dims)
    ids = {cell.trial_id for name in ("low", "mid", "high") for cell in cells_of(made, name)}
    epochs = {t: len(list(made.ledger.list_epochs(t))) for t in ids}
    assert sum(epochs.values()) == 27 * 1 + 9 * 3 + 3 * 9, "a third of 27 × 9, in all"
    assert cells_of(made, "high")[0].coords == {
        "rank": 1,
        "source": "rank=1",
        "embedding.dim": max(dims),
    }


def test_stopped_anywhere_it_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    from tests.ablate.driven import epochs_trained

    low = {"design": "search", "trials": 6, "round": 3, "startup": 3, "space": specs.SPACE}
    studies = {
        "low": low,
        "mid": promote(best=3, trial={"training.epochs": 4}, seeds=2),
        "high": promote("mid", best=1, trial={"training.epochs": 5}),
    }
    made_plan = plan(studies)
    once = run(made_plan, tmp_path / "once")
    made, trained = stopped_often(made_plan, tmp_path / "again", seed=0)
    assert table(made) == table(once) and trained == once.trained == 6 + 6 + 1
    assert epochs_trained(made) == epochs_trained(once)


# ------------------------------------------------------------------- fewer than wanted


def test_fewer_succeeded_than_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those there are run, the study says why it ends, and what is centred on it goes on."""
    monkeypatch.setenv("SYN_FAIL", "2e-3")
    studies = {
        "low": grid(),
        "high": promote(best=4, trial={"training.epochs": 2}),
        "next": promote("high", best=2, trial={"training.epochs": 4}),
        "fifth": {
            "design": "grid",
            "grid": {"method.beta": [0.1]},
            "around": {"best_of": "low", "rank": 5},
        },
    }
    made_plan = plan(studies)
    made = run(made_plan, tmp_path)
    states = made.progression.studies
    assert rates_of(made, "high") == [1e-3, 3e-4, 1e-4]
    assert states["high"].blocked == (
        "the study trains 4 cells of low again, of which only 3 have a result"
    )
    assert rates_of(made, "next") == [1e-3, 3e-4] and states["next"].complete
    assert states["fifth"].blocked == (
        "the study needs rank 5 of low, of which only 3 cells have a result"
    )
    outcome = _build_outcome(made_plan, made, None, "")
    assert outcome.missing == {"high": 1, "fifth": 1} and not outcome.is_finished
    assert "high: the study trains 4 cells of low again" in describe_ending(outcome, tmp_path)
    assert drain(dispatch(made_plan, tmp_path)) == []
    settings = Settings(tmp_path, tmp_path, Request(1, 0, "cpu"))
    told = preview_plan(made_plan, settings).text
    assert "0 trials to run now and 0 later" in told


def test_what_a_scheduler_or_a_race_ended_early_has_no_rank(tmp_path: Path) -> None:
    low = grid(scheduler={"name": "successive_halving"}, trial={"training.epochs": 9})
    raced = grid([1e-3, 1.2e-3, 3e-2, 1e-1], seeds=6, race={"after": 3})
    studies = {"low": low, "high": promote(best=2), "raced": raced, "up": promote("raced", best=2)}
    made_plan = plan(studies)
    made = run(made_plan, tmp_path)
    for study in ("high", "up"):
        assert rates_of(made, study) == [1e-3]
        assert made.progression.studies[study].blocked is not None


# ------------------------------------------------------------------ plan and identity
