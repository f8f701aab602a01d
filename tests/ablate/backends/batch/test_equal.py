"""Trials that left and came back are those that a run trains, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate import api
from ablate.ledger.facts import Sources
from ablate.ledger.ledger import Ledger
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import (
    by_command,
    facts,
    here,
    real_plan,
    real_settings,
    real_spec,
    rounds,
    synthetic_settings,
)
from tests.ablate.driven import dispatch, drain
from tests.trainables import core_trials
from tests.trainables.core_trials import timeless


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core_trials.draw(tmp_path_factory.mktemp("drawn") / "images")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.timeout(900)
def test_a_run_with_ray_and_mlflow_equals_a_batch(
    images: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a run after the import trains the rest alone, and tells MLflow of all."""
    monkeypatch.setenv("ABLATE_CACHE", str(cache))
    spec = real_spec(images)
    options = {"device": "cpu", "report": False}
    run_results = api.run(spec, out=tmp_path / "engine", **options)
    assert run_results.outcome.code == 0 and run_results.outcome.trained == 8
    plan, batch_settings = real_plan(images, cache), real_settings(tmp_path / "batch", cache)
    assert rounds(plan, batch_settings, tmp_path / "work", by_command) == [2, 2, 3]
    ended = api.run(spec, out=tmp_path / "batch", **options)  # evaluates, and the ensemble
    assert ended.outcome.code == 0 and ended.outcome.trained <= 1
    assert facts(tmp_path / "engine") == facts(tmp_path / "batch")
    assert mlflow_runs(tmp_path / "engine") == mlflow_runs(tmp_path / "batch") != {}
    more = api.run(spec, out=tmp_path / "batch", seeds=3, **options)
    assert more.outcome.code == 0 and more.outcome.trained == 4  # dims and whole


def mlflow_runs(out: Path) -> dict[str, Any]:
    """Trial → its metrics at every step, its parameters and what tells what it is."""
    from mlflow import MlflowClient

    client, runs = MlflowClient(f"sqlite:///{out}/mlflow.db"), {}
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    for run in client.search_runs(experiments):
        tags = run.data.tags
        if tags.get("ablate.kind") != "trial":
            continue
        curves = {
            name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
            for name in timeless(run.data.metrics)
            if name != "final/seconds"
        }
        same = ("config_hash", "seed", "status", "cells", "protocol", "torch")
        runs[tags["ablate.trial_id"]] = (
            curves,
            run.data.params,
            [tags[f"ablate.{name}"] for name in same],
            run.info.status,
        )
    return runs


def test_a_whole_sweep_of_rounds(tmp_path: Path) -> None:
    """Search, components, a grid that shares trials, a comparison; proposals and all."""
    plan = specs.plan()
    drain(dispatch(plan, tmp_path / "engine"))
    settings = synthetic_settings(tmp_path / "batch")
    assert sum(rounds(plan, settings, tmp_path / "work", here)) >= 20
    drain(dispatch(plan, tmp_path / "batch"))  # further evaluations are left to a run
    run_facts, batch_facts = facts(tmp_path / "engine"), facts(tmp_path / "batch")
    assert run_facts == batch_facts


@pytest.mark.slow
def test_failures_are_facts_with_their_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYN_FAIL", "1e-3")
    plan = specs.plan()
    drain(dispatch(plan, tmp_path / "engine"))
    rounds(plan, synthetic_settings(tmp_path / "batch"), tmp_path / "work", here)
    drain(dispatch(plan, tmp_path / "batch"))
    run_facts, batch_facts = facts(tmp_path / "engine"), facts(tmp_path / "batch")
    assert run_facts == batch_facts
    assert {"done", "failed"} == {trial["status"] for trial in run_facts["trials"].values()}


@pytest.mark.slow
def test_sources_are_kept_as_a_run_keeps_them(
    images: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(cache))
    one = {"one": {"design": "grid", "seeds": 1, "grid": {"optimizer.lr": [1e-3]}}}
    plan, settings = real_plan(images, cache, **one), real_settings(tmp_path / "out", cache)
    assert rounds(plan, settings, tmp_path / "work", by_command) == [1]
    with Ledger(settings.ledger) as ledger:
        (row,) = ledger.query("SELECT * FROM trials")
        assert row["source"] == Sources(ledger).get_or_create_key(row["config"])
        assert ledger.list_evaluator_sources(row["trial_id"]) == [Sources(ledger).evaluator]
