"""A sweep by the command `ablate` in a user's folder, and again after its ledger was deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.tracking.store import open_store
from tests.ablate.specs import TINY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path) -> str:
    command = folder / "bin" / "ablate"
    command.parent.mkdir(exist_ok=True)
    command.write_text("import sys\nfrom ablate.cli.main import main\nsys.exit(main())")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ABLATE_CACHE": str(folder / "cache")}
    environment["PYTHONPROFILEIMPORTTIME"] = "1"  # each process lists what it imports
    done = subprocess.run(
        [sys.executable, command, "run", "spec.yaml"],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def test_a_sweep_is_run_again_without_its_ledger(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(json.dumps(TINY), encoding="utf-8")
    for name in ("reports.py", "search_spaces.py"):  # of the user, who means no harm
        (tmp_path / name).write_text("raise SystemExit('the user’s file was run')")
    assert "2 trials were trained" in run(tmp_path)
    out = tmp_path / "runs"
    # Ray's process imports no tracker, which it would to count callbacks
    (log,) = out.glob("logs/*-ray.log")
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in log.read_text(encoding="utf-8").splitlines()
        if line.startswith("import time:")
    }
    assert "ray" in imported and not imported & {"mlflow", "wandb", "comet_ml", "aim"}
    client = open_store(f"sqlite:///{out}/mlflow.db")
    experiment = client.get_experiment_by_name("tiny")
    before = client.search_runs([experiment.experiment_id])
    assert len(before) == 3
    for path in out.glob("ledger.sqlite*"):
        path.unlink()
    run(tmp_path)
    after = client.search_runs([experiment.experiment_id])
    kinds = sorted(run.data.tags["ablate.kind"] for run in after)
    assert kinds == ["sweep", "trial", "trial"]
    assert len({run.data.tags.get("ablate.trial_id") for run in after}) == 3
    assert {run.data.tags["ablate.ledger"] for run in after}.isdisjoint(
        run.data.tags["ablate.ledger"] for run in before
    )
    assert {run.info.status for run in after} == {"FINISHED"}
    (parent,) = (run for run in after if run.data.tags["ablate.kind"] == "sweep")
    assert {run.data.tags["mlflow.parentRunId"] for run in after if run is not parent} == {
        parent.info.run_id
    }
