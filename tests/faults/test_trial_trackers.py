"""TensorBoard's files and offline runs of W&B after a driver was killed and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.ledger.ledger import Ledger
from tests.ablate.tracking.replicas import assert_equal_to_ledger
from tests.faults.driver import descendants
from tests.faults.polling import wait_until
from tests.faults.sent import spec

ROOT, TRIALS = Path(__file__).resolve().parents[2], 36


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_that_is_killed_and_interrupted_has_every_point_once(tmp_path: Path) -> None:
    out, path = tmp_path / "out", tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec("trackers", TRIALS)), encoding="utf-8")
    environment = {"WANDB_MODE": "offline", "HOME": str(tmp_path / "home"), "SLOTS": "3"}
    pace = {"SLOTS_EPOCHS": "3", "SLOTS_PACE": "0.8"}

    def start(**changes: str) -> subprocess.Popen[str]:
        trackers = ["--tracker", "tensorboard", "--tracker", "wandb"]
        command = ["run", str(path), "--out", str(out), "--no-report", *trackers]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.untrained", *command],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, **pace, **changes},
        )

    def wait_for_runs(more: int) -> None:
        runs, names = out / "wandb", "offline-run-*"
        before = {*runs.glob(names)}
        wait_until(lambda: len({*runs.glob(names)} - before) >= more, "no run was opened", 300)

    def has_mlflow() -> bool:
        with Ledger(out / "ledger.sqlite") as ledger:
            return bool(ledger.query("SELECT * FROM mlflow_runs WHERE store LIKE 'sqlite:%'"))

    driver = start()
    wait_for_runs(2)
    wait_until(has_mlflow, "MLflow has not made its tables", 300)
    driver.kill()
    driver.communicate()
    driver = start()
    wait_for_runs(4)
    (core,) = (each for each in descendants(driver.pid) if "wandb" in each.name())
    core.kill()  # W&B's own process, as where memory ends
    wait_for_runs(2)
    driver.send_signal(signal.SIGINT)
    text, _ = driver.communicate(timeout=300)
    assert driver.returncode == 130 and "wandb): the store answers again" in text, text
    driver = start(SLOTS_PACE="0")
    text, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0 and "does not answer" not in text, text
    with Ledger(out / "ledger.sqlite") as ledger:
        (sweep,) = ledger.query("SELECT sweep_id FROM sweeps")
    assert assert_equal_to_ledger(out, sweep["sweep_id"]) == TRIALS
