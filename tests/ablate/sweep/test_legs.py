"""Schedulers at work in a sweep: legs, promotions, what the ledger and the search are told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ablate.plan.plan import Plan
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, epochs_trained, finish, stopped_often, table

SPACE = specs.SPACE


def scheduled(trials: int = 9, epochs: int = 9, **study: Any) -> Plan:
    return specs.plan(
        {
            "name": "legs",
            "trial": {"training.epochs": epochs, "method": {"name": "ddml"}},
            "studies": {
                "tune": {"design": "search", "trials": trials, "round": 9, "space": SPACE, **study}
            },
        }
    )


@pytest.mark.parametrize("name", ["successive_halving", "hyperband"])
def test_halving_is_the_same_whatever_the_timing(tmp_path: Path, name: str) -> None:
    plan = scheduled(18, scheduler={"name": name})
    tables = []
    for number, at_once in enumerate((1, 5)):
        draw = random.Random(number)
        made = dispatch(plan, tmp_path / str(number))
        drain(made, at_once, draw.choice)
        tables.append(table(made))
        assert drain(dispatch(plan, tmp_path / str(number))) == []
    assert tables[0] == tables[1]
    statuses = [row["status"] for row in tables[0]]
    assert statuses.count("done") == (2 if name == "successive_halving" else 4)
    assert set(statuses) == {"done", "partial"}


def test_halving_stopped_anywhere_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    plan = scheduled(18, scheduler={"name": "successive_halving"})
    once = dispatch(plan, tmp_path / "once")
    drain(once)
    made, _ = stopped_often(plan, tmp_path / "again", seed=0)
    assert table(made) == table(once)
    assert epochs_trained(made) == epochs_trained(once)


@pytest.mark.parametrize("name", ["asha", "median"])
def test_asynchronous_loses_and_repeats_nothing(tmp_path: Path, name: str) -> None:
    plan = scheduled(10, round=5, scheduler={"name": name, "grace": 2})
    draw = random.Random(1)
    made = dispatch(plan, tmp_path)
    while not made.is_exhausted:
        for _ in range(3):
            made.claim_next_job()
        for trial_id in list(made.running)[: draw.randint(0, 2)]:
            finish(made, trial_id)
        if draw.random() < 0.3:
            made.interrupt_all("stopped by the test")
            made = dispatch(plan, tmp_path)
    rows = table(made)
    assert len(rows) == 10 and {row["status"] for row in rows} <= {"done", "partial"}
    counts = epochs_trained(made)
    assert drain(dispatch(plan, tmp_path)) == [], "a finished sweep has nothing left to do"
    assert epochs_trained(made) == counts


def test_median_stops_are_facts(tmp_path: Path) -> None:
    rates = [1e-3, 2e-3, 5e-4, 4e-3, 5.0, 8.0]
    plan = specs.plan(
        {
            "name": "median",
            "trial": {"training.epochs": 5},
            "studies": {
                "grid": {
                    "design": "grid",
                    "grid": {"optimizer.lr": rates},
                    "scheduler": {"name": "median", "grace": 2},
                }
            },
        }
    )
    made = dispatch(plan, tmp_path)
    drain(made)
    statuses = [row["status"] for row in table(made)]
    assert statuses == ["done"] * 4 + ["partial"] * 2
    assert sorted(epochs_trained(made).values()) == [2, 2, 5, 5, 5, 5]
    assert made.ledger.get_stops(plan.sweep_id, "grid").keys() == {
        "optimizer.lr=5.0",
        "optimizer.lr=8.0",
    }
    assert drain(dispatch(plan, tmp_path)) == []
