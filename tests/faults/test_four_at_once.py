"""Four sweeps started in the same second on fresh files: one ledger, one MLflow store."""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.ledger import Ledger
from tests.faults.driver import SPEC

ROOT = Path(__file__).resolve().parents[2]
SWEEPS = 4


def given(number: int) -> dict[str, Any]:
    """Sweeps that share the search and its ablation, and have a grid of their own."""
    rates = [round(1e-3 * (number + 1) + 1e-5 * i, 6) for i in range(4)]
    return {
        "spec": {"name": f"sweep{number}", "resources": {"cpus": 1, "gpus": 0}},
        "studies": {"own": {"design": "grid", "grid": {"optimizer.lr": rates}}},
        "track": True,
    }


@pytest.mark.slow
@pytest.mark.usefixtures("preloaded_processes")
@pytest.mark.timeout(600)
def test_four_sweeps_at_once_on_fresh_files(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    command = [sys.executable, "-m", "tests.faults.driver", str(tmp_path / "out")]
    environment = {**os.environ, "SYN_STARTS": str(starts), "OMP_NUM_THREADS": "1"}
    drivers = [
        subprocess.Popen(
            [*command, json.dumps(given(number))],
            cwd=ROOT,
            text=True,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for number in range(SWEEPS)
    ]
    texts = [driver.communicate(timeout=500)[0] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0] * SWEEPS, texts
    assert not any("Traceback" in text for text in texts), texts

    trained = collections.Counter(
        line.split()[0] for line in starts.read_text().splitlines() if line.split()[1] == "train"
    )
    assert set(trained.values()) == {1}, "a trial was trained twice"
    with Ledger(tmp_path / "out" / "ledger.sqlite") as ledger:
        sweeps = {row["name"]: row["sweep_id"] for row in ledger.query("SELECT * FROM sweeps")}
        cells = {name: ledger.list_cells(sweep_id) for name, sweep_id in sweeps.items()}
        trials = ledger.query("SELECT trial_id, status, owner FROM trials")
    assert len(sweeps) == SWEEPS
    size = SPEC["studies"]["tune"]["trials"] + 2 * 4 + 2 * 2 + 2 * 4
    assert {len(found) for found in cells.values()} == {size}
    assert {row["status"] for row in trials} == {"done"}
    assert {row["owner"] for row in trials} == {None}
    assert set(trained) == {row["trial_id"] for row in trials}
    runs_agree(tmp_path / "out", sweeps, cells)


def runs_agree(out: Path, sweeps: dict[str, str], cells: dict[str, list[dict[str, Any]]]) -> None:
    """One parent a sweep, one child a trial under it, all of them finished."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{out / 'mlflow.db'}")
    for name, sweep_id in sweeps.items():
        experiment = client.get_experiment_by_name(name)
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        parents = [run for run in runs if run.data.tags["ablate.kind"] == "sweep"]
        children = [run for run in runs if run.data.tags["ablate.kind"] == "trial"]
        assert [run.data.tags["ablate.sweep_id"] for run in parents] == [sweep_id]
        ids = [run.data.tags["ablate.trial_id"] for run in children]
        assert len(ids) == len(set(ids)), "a duplicate child run"
        assert set(ids) == {cell["trial_id"] for cell in cells[name]}
        assert {run.info.status for run in runs} == {"FINISHED"}
