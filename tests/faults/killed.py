"""A real sweep by the command line, its driver killed again and again, beside one left in peace."""

from __future__ import annotations

import copy
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.ledger.ledger import Ledger
from tests.faults.expected_points import Point, list_expected_points
from tests.faults.polling import wait_until

ROOT = Path(__file__).resolve().parents[2]

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
        "training": {"epochs": 10},
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
                "data.split.images_per_class": 10,
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
# Later, more is asked of the same trials: those that are finished are evaluated once more.
MORE = copy.deepcopy(SPEC)
for _study in ("tune", "parts"):
    MORE["studies"][_study] |= {"evaluate": ["val", "test"], "metrics": ["uniformity"]}


@dataclass
class Run:
    """An output folder and what becomes of its drivers."""

    folder: Path
    kills: int = 0  # of drivers
    ended: int = 0  # drivers that were done before they could be killed

    @property
    def ledger(self) -> Path:
        return self.folder / "out" / "ledger.sqlite"

    def start(self, spec: dict[str, Any]) -> subprocess.Popen[str]:
        path = self.folder / "spec.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec))
        command = [sys.executable, "-m", "ablate.run", str(path), "--out", str(self.folder / "out")]
        return subprocess.Popen(
            [*command, "--checkpoint-seconds", "0", "--device", "cpu"],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def finish(self, spec: dict[str, Any]) -> str:
        process = self.start(spec)
        text, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, text
        return text

    def kill(self, spec: dict[str, Any], draw: random.Random) -> bool:
        """A driver, killed at a random instant of its life: at its start, or somewhat after it has
        recorded something. Whether it was still alive."""
        driver = self.start(spec)
        before = self.progress()
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 12))
        else:
            wait_until(
                lambda: self.progress() > before or driver.poll() is not None,
                "no trial made progress",
                240,
            )
            time.sleep(draw.uniform(0, 3))
        driver.send_signal(signal.SIGKILL)
        text, _ = driver.communicate(timeout=60)
        if driver.returncode != -signal.SIGKILL:
            assert driver.returncode == 0, text
            self.ended += 1
            return False
        self.kills += 1
        return True

    def progress(self) -> int:
        """Grows with everything that is recorded."""
        if not self.ledger.exists():
            return 0
        with Ledger(self.ledger) as ledger:
            (epochs,) = ledger.query("SELECT count(*) AS n FROM epochs")
            (lengths,) = ledger.query(
                "SELECT coalesce(sum(length(metrics_json)), 0) AS n FROM evaluations"
            )
        return int(epochs["n"]) + int(lengths["n"])

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Every table but for the run ids, which each store draws anew."""
        tables = {}
        for path in self.folder.glob("out/reports/*/table_*.csv"):
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            assert all(row.pop("run_ids") for row in rows)
            tables[path.name] = rows
        return tables

    def facts(self) -> dict[str, Any]:
        """Per trial: status, epochs recorded, evaluations; no times."""
        with Ledger(self.ledger) as ledger:
            return {
                row["trial_id"]: (
                    row["status"],
                    row["steps"],
                    [epoch["epoch"] for epoch in ledger.list_epochs(row["trial_id"])],
                    ledger.get_evaluations(row["trial_id"]),
                )
                for row in ledger.query("SELECT trial_id, status, steps FROM trials")
            }

    def trained(self) -> dict[str, list[int]]:
        """Epochs that each attempt of each trial trained itself, from the trials' logs."""
        return {
            log.parent.name: [
                int(line.split(" epoch ")[1].split("/")[0])
                for line in log.read_text().splitlines()
                if " epoch " in line and " · step " in line
            ]
            for log in self.folder.glob("out/trials/*/trial.log")
        }

    def mlflow_runs(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Trial, or "" for the sweep → status and parameters of its only run."""
        _, runs = self._mlflow()
        by_trial = {
            run.data.tags.get("ablate.trial_id", ""): (run.info.status, dict(run.data.params))
            for run in runs
        }
        assert len(by_trial) == len(runs), "a run is there twice"
        return by_trial

    def points(self) -> Counter[Point]:
        """Every point of every metric that MLflow has, as often as it has it."""
        client, runs = self._mlflow()
        points: Counter[Point] = Counter()
        for run in runs:
            trial = run.data.tags.get("ablate.trial_id", "")
            for key in run.data.metrics:
                for p in client.get_metric_history(run.info.run_id, key):
                    points[trial, key, p.value, p.timestamp, p.step] += 1
        return points

    def _mlflow(self) -> tuple[Any, list[Any]]:
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{self.folder / 'out' / 'mlflow.db'}")
        experiment = client.get_experiment_by_name(SPEC["name"])
        assert experiment is not None
        return client, list(client.search_runs([experiment.experiment_id], max_results=1000))

    def expected_points(self) -> Counter[Point]:
        with Ledger(self.ledger) as ledger:
            return list_expected_points(ledger)


def timeless(points: Counter[Point]) -> Counter[tuple[str, str, float, int]]:
    """Points without what the clock gives: two runs that do the same agree in these."""
    return Counter(
        {
            (trial, key, value, step): count
            for (trial, key, value, _, step), count in points.items()
            if not key.startswith("time/") and key != "final/seconds"
        }
    )


def assert_same(run: Run, whole: Run) -> int:
    """All that a person can see of a killed sweep is what it is in peace; how many points."""
    assert run.tables() == whole.tables() and len(whole.tables()) == 3
    assert run.facts() == whole.facts()
    assert all(status == "done" for status, *_ in run.facts().values())
    runs = run.mlflow_runs()
    assert set(runs) == {"", *run.facts()}, "a run lost"
    assert {status for status, _ in runs.values()} == {"FINISHED"}
    assert runs == whole.mlflow_runs()
    points, expected = run.points(), run.expected_points()
    assert points == expected, (
        f"MLflow has not what the ledger says, once: too much {sorted(points - expected)[:5]}, "
        f"too little {sorted(expected - points)[:5]}"
    )
    assert max(points.values()) == 1
    assert len({(trial, key, step) for trial, key, _, _, step in points}) == len(points)
    assert timeless(points) == timeless(whole.points())
    return len(points)
