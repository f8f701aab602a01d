"""Schedulers at work in a sweep: legs, promotions, what the ledger and the search are told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ablate.backends.this_process import run_cell
from ablate.cli.upkeep import find_removable_files
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.plan.plan import Plan
from tests.ablate import specs
from tests.ablate.driven import (
    RUNNER,
    dispatch,
    drain,
    epochs_trained,
    finish,
    stopped_often,
    table,
)

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


@pytest.mark.parametrize("name", ["successive_halving", "asha", "median"])
def test_a_finished_sweep_counts_as_finished(tmp_path: Path, name: str) -> None:
    """So that `ablate prune` removes weights, although stopped trials have no result."""
    made = dispatch(scheduled(round=9, scheduler={"name": name}), tmp_path)
    for _ in range(4):
        job = made.claim_next_job()
        assert job is not None
        finish(made, job.trial_id)
    assert "is not finished" in str(find_removable_files(made.ledger, tmp_path, None))
    drain(made)
    statuses = {row["status"] for row in table(made)}
    assert statuses == {"done", "partial"}
    assert find_removable_files(made.ledger, tmp_path, None)[1] == []


@pytest.mark.parametrize("stops", [False, True])
def test_one_cell_trains_to_the_end_whatever_its_scheduler_says(
    tmp_path: Path, stops: bool
) -> None:
    plan = scheduled(scheduler={"name": "successive_halving"})
    made = dispatch(plan, tmp_path)
    job = made.claim_next_job()
    assert job is not None
    finish(made, job.trial_id)  # at the first rung it waits for the others
    if stops:
        drain(made)
    row = next(row for row in table(made) if row["status"] == "partial")
    request = Request(1, 0, "cpu")
    settings = Settings(tmp_path, tmp_path, request, runner=RUNNER)
    assert run_cell(plan, settings, f"tune/{row['cell']}") == 0
    trial = made.ledger.get_trial(row["trial_id"])
    assert trial is not None and (trial["status"], trial["epochs"]) == ("done", 9)


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


def median_grid(**more: Any) -> Plan:
    """Six cells, of which the last two fall behind; more: of the sweep."""
    rates = [1e-3, 2e-3, 5e-4, 4e-3, 5.0, 8.0]
    return specs.plan(
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
            **more,
        }
    )


def test_median_stops_are_facts(tmp_path: Path) -> None:
    plan = median_grid()
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


@pytest.mark.parametrize("name", ["successive_halving", "asha", "median"])
def test_force_begins_all_curves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plan = scheduled(scheduler={"name": name})
    once = dispatch(plan, tmp_path)
    drain(once)
    rows, counts = table(once), epochs_trained(once)
    monkeypatch.setenv("SYN_EPOCHS", str(tmp_path / "epochs"))
    made = dispatch(plan, tmp_path, force=True)
    drain(made)
    assert len((tmp_path / "epochs").read_text().splitlines()) == sum(counts.values())
    assert table(made) == rows and epochs_trained(made) == counts
    assert drain(dispatch(plan, tmp_path)) == []


def test_a_stop_does_not_outlive_force(tmp_path: Path) -> None:
    plan = median_grid()
    once = dispatch(plan, tmp_path)
    drain(once)
    stops = once.ledger.get_stops(plan.sweep_id, "grid")
    once.ledger.put_stop(plan.sweep_id, "grid", "optimizer.lr=0.001", 2)  # by worse code, say
    made = dispatch(plan, tmp_path, force=True)
    drain(made)
    assert made.ledger.get_stops(plan.sweep_id, "grid") == stops
    assert [row["status"] for row in table(made)] == ["done"] * 4 + ["partial"] * 2


@pytest.mark.parametrize("seeds", [[7], [0, 1]])
def test_a_stop_is_none_of_other_seeds(tmp_path: Path, seeds: list[int]) -> None:
    """Nor of trials at another REVISION, whose sweep has the same id, too."""
    plan = median_grid(seeds=1)
    drain(dispatch(plan, tmp_path))
    later = median_grid(seeds=seeds)
    assert later.sweep_id == plan.sweep_id
    made = dispatch(later, tmp_path)
    drain(made)
    assert sorted(epochs_trained(made).values()) == [2] * 4 + [5] * 8
    assert drain(dispatch(later, tmp_path)) == []
