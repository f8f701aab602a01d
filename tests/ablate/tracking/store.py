"""What an MLflow store holds of a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ablate.ledger.ledger import Ledger


def runs(sweep: Any, uri: str | None = None) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri or sweep.uri)
    experiment = client.get_experiment_by_name("ddml")
    if experiment is None:  # the thread that writes has not begun
        return []
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def parent_run(sweep: Any, uri: str | None = None) -> Any:
    (parent,) = [run for run in runs(sweep, uri) if run.data.tags["ablate.kind"] == "sweep"]
    return parent


def finish_some(sweep: Any, count: int) -> list[str]:
    """Plan the sweep with one seed, and finish its first trials in the ledger."""
    trials: list[str] = sweep.plan(seeds=1)[:count]
    sweep.finish(trials)
    return trials


def children(sweep: Any, uri: str | None = None) -> dict[str, Any]:
    """Trial → its only run; fails on a duplicate."""
    results = [run for run in runs(sweep, uri) if run.data.tags["ablate.kind"] == "trial"]
    by_trial = {run.data.tags["ablate.trial_id"]: run for run in results}
    assert len(by_trial) == len(results)
    return by_trial


def history(sweep: Any, run: Any, key: str, uri: str | None = None) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    results = MlflowClient(uri or sweep.uri).get_metric_history(run.info.run_id, key)
    return sorted((metric.step, metric.value) for metric in results)


def assert_complete(sweep: Any, trials: list[str], uri: str | None = None) -> None:
    """Every trial's run has every epoch once and the final metrics of the ledger."""
    results = children(sweep, uri)
    assert set(results) == set(trials)
    with Ledger(sweep.ledger_path) as ledger:
        for trial_id, run in results.items():
            epochs = ledger.list_epochs(trial_id)
            expected = [(row["epoch"], row["metrics"]["val/map_at_r"]) for row in epochs]
            assert history(sweep, run, "val/map_at_r", uri) == expected
            for split, metrics in ledger.get_evaluations(trial_id).items():
                for key, value in metrics.items():
                    assert run.data.metrics[f"final/{split}/{key}"] == value
    assert "RUNNING" not in {run.info.status for run in runs(sweep, uri)}


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
