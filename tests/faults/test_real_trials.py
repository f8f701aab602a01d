"""Real trials, the real tracker and the command line, with the driver killed again and again."""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
KILLS = 5

SPEC: dict[str, Any] = {
    "name": "killed",
    "seeds": 2,
    "trial": {
        "data": {"name": "typefaces", "image_size": 32},
        "backbone": {"mode": "frozen"},
        "embedding": {"dim": 64, "init": "pca"},
        "loss": {"name": "normsoftmax"},
        "method": {"name": "ddml"},
        "optimizer": {"lr": 1e-3},
        "training": {"epochs": 25},
    },
    "studies": {
        "tune": {
            "design": "search",
            "trials": 6,
            "round": 3,
            "startup": 3,
            "seeds": 1,
            "space": {"method.alpha": {"low": 1e-3, "high": 1, "log": True}},
        },
        "parts": {
            "design": "components",
            "around": {"best_of": "tune"},
            "components": {"agnostic": {"method.alpha": 0}, "split": {"method.gamma": 0}},
            "evaluate": ["val", "test"],
        },
        "whole": {
            "design": "compare",
            "seeds": 1,
            "trial": {
                "data.image_size": 32,
                "backbone.mode": "finetune",
                "training": {"epochs": 4},
            },
            "variants": {"ddml": {"around": {"best_of": "tune"}}},
        },
    },
    "report": {
        "tables": [
            {"kind": "components", "study": "parts", "metrics": ["test/recall_at_1"]},
            {"kind": "compare", "study": "whole"},
            {"kind": "search", "study": "tune"},
        ]
    },
}


def start(folder: Path) -> subprocess.Popen[str]:
    spec = folder / "spec.yaml"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(json.dumps(SPEC))
    command = [sys.executable, "-m", "ablate.run", str(spec), "--out", str(folder / "out")]
    return subprocess.Popen(
        [*command, "--checkpoint-seconds", "0", "--device", "cpu"],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def tables(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Every table but for the run ids, which each store draws anew."""
    found = {}
    for path in folder.glob("out/reports/*/table_*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert all(row.pop("run_ids") for row in rows)
        found[path.name] = rows
    return found


def facts(folder: Path) -> dict[str, Any]:
    """Per trial: status, epochs recorded, evaluations; no times."""
    with Ledger(folder / "out" / "ledger.sqlite") as ledger:
        return {
            row["trial_id"]: (
                row["status"],
                row["steps"],
                [epoch["epoch"] for epoch in ledger.epochs(row["trial_id"])],
                ledger.evaluations(row["trial_id"]),
            )
            for row in ledger.rows("SELECT trial_id, status, steps FROM trials")
        }


def mlflow_runs(folder: Path) -> list[tuple[str, str]]:
    """(trial id or "", status) of every run in the store."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'out' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("killed")
    runs = client.search_runs([experiment.experiment_id])
    return sorted((run.data.tags.get("ablate.trial_id", ""), run.info.status) for run in runs)


def trained(folder: Path) -> dict[str, list[int]]:
    """Steps that each attempt of each trial trained itself, from the trials' logs."""
    found: dict[str, list[int]] = {}
    for log in folder.glob("out/trials/*/trial.log"):
        epochs = [
            int(line.split(" epoch ")[1].split("/")[0])
            for line in log.read_text().splitlines()
            if " epoch " in line and " · step " in line
        ]
        found[log.parent.name] = epochs
    return found


def running(folder: Path) -> int:
    path = folder / "out" / "ledger.sqlite"
    if not path.exists():
        return 0
    with Ledger(path) as ledger:
        return len(ledger.rows("SELECT trial_id FROM epochs"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_sigkill_at_random_instants_changes_nothing(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text
    draw = random.Random(20261121)
    for kill in range(KILLS):
        driver = start(killed)
        before, end = running(killed), time.monotonic() + 120
        while running(killed) <= before:
            assert driver.poll() is None, f"ended before kill {kill}: {driver.communicate()[0]}"
            assert time.monotonic() < end, "no trial made progress"
            time.sleep(0.05)
        time.sleep(draw.uniform(0, 3))
        driver.send_signal(signal.SIGKILL)
        driver.communicate(timeout=60)
    process = start(killed)
    text, _ = process.communicate(timeout=600)
    assert process.returncode == 0, text

    assert tables(killed) == tables(whole) and len(tables(whole)) == 3
    assert facts(killed) == facts(whole)
    assert all(status == "done" for status, *_ in facts(killed).values())
    runs = mlflow_runs(killed)
    assert [trial for trial, _ in runs] == ["", *sorted(facts(killed))], "a run lost or twice"
    assert {status for _, status in runs} == {"FINISHED"}
    # With a checkpoint each epoch, a kill costs a running trial at most the epoch it was in.
    for trial, epochs in trained(killed).items():
        again = [(a, b) for a, b in itertools.pairwise(epochs) if b <= a]
        assert all(a == b for a, b in again), f"{trial} went back further: {again}"
        assert len(again) <= KILLS
