"""Ensembles of a study's folds: when they are evaluated, where they stand, what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.engine.progress import build_study_rows as progress_rows
from ablate.ledger.ledger import Owner
from ablate.sweep.job_queue import JobQueue
from ablate.tracking.payload import iterate_final_metrics
from tests.ablate import specs, synthetic
from tests.ablate.driven import dispatch, drain, table
from tests.ablate.real_sweeps import real
from tests.trainables import core_trials
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.ensemble import Member, evaluate_ensemble
from trainables.jobs.locked_job import LockedJob
from trainables.jobs.request import Job
from trainables.trial import TrialConfig

ASKED = ["val", "test", "ensemble"]
FOLDED = {"folds": 2, "evaluate": ASKED}
GRID: dict[str, Any] = {"design": "grid", "grid": {"method.alpha": [0, 1]}}


def folded(folds: int = 2, **more: Any) -> dict[str, Any]:
    """A grid of two rates at two seeds."""
    study = {
        "design": "grid",
        "folds": folds,
        "evaluate": ASKED,
        "grid": {"optimizer.lr": [1e-3, 1e-4]},
    }
    return specs.spec(**{"studies": {"grid": study}, **more})


def of(made: JobQueue, study: str = "grid") -> list[dict[str, Any]]:
    return [row for row in table(made) if row["study"] == study]


def test_a_real_sweep_its_resumption_and_a_metric_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core_trials.draw(tmp_path / "images")
    made = real(tmp_path, **FOLDED)
    order = drain(made)
    assert sorted(entry.split()[1] for entry in order) == ["ensemble"] * 2 + ["train"] * 4
    rows = of(made, "rates")
    assert len(rows) == 4 and not made.lost
    for first, second in (rows[:2], rows[2:]):
        assert (first["fold"], second["fold"]) == (0, 1)
        members = [member(made, row) for row in (first, second)]
        runtime = Runtime("cpu", 1, tmp_path / "cache")
        found = evaluate_ensemble(members, runtime)
        assert {name: first[f"ensemble/{name}"] for name in found} == found
        assert set(made.ledger.get_evaluations(second["trial_id"])) == {"val", "test"}
    trial = made.ledger.get_trial(rows[0]["trial_id"])
    assert trial is not None
    evaluations = made.ledger.get_evaluations(trial["trial_id"])
    told = {key: value for key, value, _, _ in iterate_final_metrics(trial, evaluations, {})}
    assert told["final/ensemble/map_at_r"] == rows[0]["ensemble/map_at_r"]

    monkeypatch.setattr(Trainer, "step", None)  # nothing may train from here on
    assert real(tmp_path, **FOLDED).is_exhausted
    more = real(tmp_path, **FOLDED, metrics=["density"])
    modes = [entry.split()[1] for entry in drain(more)]
    assert modes.count("ensemble") == 2 and modes.count("train") == 0 and more.trained == 0
    assert all("ensemble/density" in row for row in of(more, "rates") if row["fold"] == 0)
    assert (
        real(tmp_path, **FOLDED).is_exhausted
        and real(tmp_path, **FOLDED, metrics=["density"]).is_exhausted
    )

    gone = tmp_path / "trials" / rows[3]["trial_id"] / "best.safetensors"
    gone.unlink()
    lacking = real(tmp_path, **FOLDED, metrics=["density", "spectrum"])
    drain(lacking)
    assert "does not exist. Give --force" in lacking.lost[rows[2]["trial_id"]]
    assert "ensemble/spectrum" in of(lacking, "rates")[0], "the other cell's is there"


def member(made: JobQueue, row: dict[str, Any]) -> Member:
    trial = made.ledger.get_trial(row["trial_id"])
    assert trial is not None
    export = made.settings.trials / row["trial_id"] / trial["export"]
    return Member(TrialConfig.model_validate(trial["config"]), row["seed"], export)


@pytest.mark.parametrize("at_once", [1, 3])
def test_one_evaluation_per_cell_and_seed_after_its_folds(tmp_path: Path, at_once: int) -> None:
    made = dispatch(specs.plan(folded(4)), tmp_path)
    choose = random.Random(at_once).choice
    order = [entry.split() for entry in drain(made, at_once, choose)]
    rows = of(made)
    firsts = [row["trial_id"] for row in rows if row["fold"] == 0]
    assert sorted(t for t, mode in order if mode == "ensemble") == sorted(firsts)
    assert len(firsts) == 2 * 2 and not any("ensemble" in row["study"] for row in rows)
    for row in rows:
        assert ("ensemble/map_at_r" in row) == (row["fold"] == 0)
    for cell in {(row["cell"], row["seed"]) for row in rows}:
        mine = [row["trial_id"] for row in rows if (row["cell"], row["seed"]) == cell]
        last = max(order.index([t, "train"]) for t in mine)
        assert order.index([mine[0], "ensemble"]) > last
    shown = next(row for row in progress_rows(made, 1) if row.study == "grid")
    assert (shown.done, shown.failed) == (16, 0)
    assert drain(dispatch(specs.plan(folded(4)), tmp_path)) == []


def test_a_failed_fold_leaves_no_ensemble_and_nothing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, bad = synthetic.run_job, {"on": True}

    def run_job(job: Job) -> Any:
        split = job.config["data"]["split"]
        if bad["on"] and split["fold"] == 1 and job.config["optimizer"]["lr"] == 1e-4:
            raise RuntimeError("a bad fold")
        return plain(job)

    monkeypatch.setattr(synthetic, "run_job", run_job)
    made = dispatch(specs.plan(folded()), tmp_path)
    order = drain(made, 3)
    assert made.progression.studies["grid"].complete and not made.lost
    rows = of(made)
    assert [row["status"] for row in rows].count("failed") == 2
    assert sum(entry.endswith("ensemble") for entry in order) == 2, "of the other rate's two seeds"
    for row in rows:
        whole = row["fold"] == 0 and row["cell"] == "optimizer.lr=0.001"
        assert ("ensemble/map_at_r" in row) == whole
    assert dispatch(specs.plan(folded()), tmp_path).is_exhausted
    bad["on"] = False
    again = dispatch(specs.plan(folded()), tmp_path, retry_failed=True)
    modes = [entry.split()[1] for entry in drain(again)]
    assert sorted(modes) == ["ensemble"] * 2 + ["train"] * 2


def test_a_killed_evaluation_is_done_again(tmp_path: Path) -> None:
    made = dispatch(specs.plan(folded()), tmp_path)
    while (job := made.claim_next_job()) is not None and job.mode != "ensemble":
        attempt = LockedJob(job, made.settings.runner, clean=True)
        made.record_events(job.trial_id, attempt.receive_events(60.0))
        attempt.close()
    assert job is not None
    first = job.trial_id
    with made.ledger.begin_transaction() as db:  # as if its driver had been another one, now gone
        dead = replace(Owner.from_this_process(), pid=2**22 + 1)
        db.execute("UPDATE trials SET owner=? WHERE trial_id=?", [str(dead), first])
    made.ledger.close()
    later = dispatch(specs.plan(folded()), tmp_path)
    assert first in later.ledger.release_dead()
    assert later.ledger.get_trial(first)["status"] == "done"  # type: ignore[index]
    assert f"{first} ensemble" in drain(later)
