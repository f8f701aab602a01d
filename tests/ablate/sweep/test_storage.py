"""What a sweep does about trials' files in a storage, and where that is away."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.sweep import trial_queue
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain

GRID = {"design": "grid", "grid": {"optimizer.lr": [1e-2, 1e-3, 1e-4]}}
FOLDS = {**GRID, "folds": 2, "evaluate": ["val", "ensemble"]}


class There:
    """A storage: what it was asked for, and how often it is away before that."""

    def __init__(self, made: JobQueue, away: int = 0) -> None:
        self.made, self.away, self.asked = made, away, list[str]()
        self.before: dict[str, Any] = {}

    def __call__(self, trial_id: str) -> None:
        self.before[trial_id] = self.made.ledger.get_trial(trial_id)
        if self.away:
            self.away -= 1
            raise OSError(errno.EHOSTUNREACH, "the storage is away")
        self.asked.append(trial_id)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_queue, "WAIT_SECONDS", 0.0)


def forced(folder: Path, away: int) -> tuple[JobQueue, There]:
    """A sweep that is done, once more with --force."""
    plan = specs.plan(specs.spec(studies={"grid": GRID}))
    drain(dispatch(plan, folder))
    made = dispatch(plan, folder, force=True)
    there = There(made, away)
    made.settings = replace(made.settings, forget=there)
    return made, there


def test_what_the_storage_keeps_the_ledger_does_not_forget(tmp_path: Path) -> None:
    made, there = forced(tmp_path, away=1)
    trials = {row["trial_id"]: row for row in made.ledger.query("SELECT * FROM trials")}
    order = drain(made)
    (lost,) = made.lost
    assert "the storage is away" in made.lost[lost]
    assert [entry.partition(" ")[0] for entry in order] == there.asked
    assert lost not in there.asked and len(there.asked) == len(trials) - 1, "one is lost, not all"
    assert dict(made.ledger.get_trial(lost) or {}) == {
        **trials[lost],
        "heartbeat": there.before[lost]["heartbeat"],
    }
    assert (tmp_path / "trials" / lost / "best.safetensors").exists()
    for trial in there.asked:
        assert there.before[trial]["status"] == "done", "the ledger forgot it first"


def test_weights_are_fetched_before_a_job_reads_them(tmp_path: Path) -> None:
    made = dispatch(specs.plan(specs.spec(studies={"grid": FOLDS})), tmp_path)
    there = There(made)
    made.settings = replace(made.settings, fetch=there)
    order = drain(made)
    ensembles = [entry.partition(" ")[0] for entry in order if entry.endswith("ensemble")]
    trained = {entry.partition(" ")[0] for entry in order if entry.endswith("train")}
    assert len(ensembles) == len(trained) // 2 > 1 and not made.lost
    assert set(there.asked) == trained and set(ensembles) <= trained
