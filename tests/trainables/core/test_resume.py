"""Interrupted anywhere, a trial ends as if it had not been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.core_trials import comparable, config, job, timeless
from trainables.core import trainer
from trainables.core.checkpoints import Checkpoints
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
from trainables.words.errors import ConfigError

WORKER = """
import json, sys
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
for event in run_job(Job.from_dict(json.loads(sys.argv[1]))):
    print(json.dumps(event), flush=True)
"""


def run_until_killed(job: Job, epoch: int) -> list[dict[str, Any]]:
    """Run a job in a process of its own, SIGKILL it when it tells of `epoch`; return its events."""
    command = [sys.executable, "-c", WORKER, json.dumps(job.to_dict())]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    events = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            events.append(json.loads(line))
            if events[-1].get("epoch") == epoch:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    return events


@pytest.mark.parametrize(
    "backbone",
    [
        {"mode": "frozen"},
        pytest.param({"mode": "finetune"}, marks=pytest.mark.slow),
        pytest.param({"mode": "lora", "name": "test_vit"}, marks=pytest.mark.slow),
        pytest.param({"mode": "bias"}, marks=pytest.mark.slow),
        pytest.param({"mode": "last_blocks", "freeze_bn": False}, marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed_ends_in_the_same_bytes(
    backbone: dict[str, Any], drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = config(
        drawn,
        backbone=backbone,
        method={"name": "ddml", "weights": "relative"},
        schedule={"warmup_epochs": 1},
        training={"epochs": 5},
    )
    uninterrupted = list(run_job(job(trial, shared_cache, tmp_path / "whole")))
    assert [e["event"] for e in uninterrupted] == ["epoch"] * 5 + ["final"]

    interrupted = job(trial, shared_cache, tmp_path / "killed")
    first = run_until_killed(interrupted, 3)
    assert [e["epoch"] for e in first] == [1, 2, 3]
    resumed_events = list(run_job(interrupted))
    assert [e["event"] for e in resumed_events][-1] == "final"
    begun = resumed_events[0]["epoch"]
    assert begun in (3, 4)  # the third may have been killed before it was saved
    assert [e["epoch"] for e in resumed_events[:-1]] == list(range(begun, 6))
    steps = uninterrupted[-1]["steps"]
    assert resumed_events[-1]["provenance"]["steps_this_process"] == steps * (6 - begun) // 5
    assert resumed_events[-1]["provenance"]["resumed_from_epoch"] == begun - 1

    assert comparable(resumed_events[-1]) == comparable(uninterrupted[-1])
    files = [tmp_path / name / "best.safetensors" for name in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()


class Stop(Exception):
    """Stands for a kill at a chosen step."""


def test_resumed_in_mid_epoch(
    drawn: Path, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = config(drawn, method={"name": "ddml"}, training={"epochs": 3})
    uninterrupted = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
    expected = [timeless(r.metrics) for r in uninterrupted.train_epochs()]

    monkeypatch.setattr(trainer, "CHECK_EVERY", 1)
    runtime = Runtime("cpu", 1, shared_cache, tmp_path, checkpoint_seconds=1e-9)
    cut = uninterrupted.schedule.steps_per_epoch + 2
    real = Trainer.step

    def stopped(self: Trainer, *args: Any) -> None:
        if self.steps == cut:
            raise Stop
        real(self, *args)

    monkeypatch.setattr(Trainer, "step", stopped)
    with pytest.raises(Stop):
        list(Trainer(trial, 0, runtime).train_epochs())
    monkeypatch.setattr(Trainer, "step", real)

    resumed = Trainer(trial, 0, runtime)
    assert (resumed.epoch, resumed.steps) == (1, cut)
    assert resumed.trace is not None
    actual = [timeless(r.metrics) for r in resumed.train_epochs()]
    assert actual == expected[1:]
    assert [timeless(r.metrics) for r in resumed.history] == expected
    for name, tensor in uninterrupted.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints", "abc", 0)
    for epoch, best in ((1, 1), (2, 2), (3, 2), (4, 4)):
        weights = {"w": torch.full((1000,), float(best))}
        state = {"epoch": epoch, "network": {"w": torch.full((1000,), float(epoch))}}
        checkpoints.save_state(10 * epoch, state, {"epoch": best, "value": 0.5, "weights": weights})
    return checkpoints


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_two_newest_and_their_best_are_kept(saved: Checkpoints) -> None:
    assert names(saved) == [
        "best-000002.pt",
        "best-000004.pt",
        "steps-0000000030-best-000002.pt",
        "steps-0000000040-best-000004.pt",
    ]
    actual = saved.load_latest()
    assert actual is not None
    state, best = actual
    assert state["epoch"] == 4
    assert best is not None
    assert best["epoch"] == 4
    assert torch.equal(best["weights"]["w"], torch.full((1000,), 4.0))


@pytest.mark.parametrize("damaged", ["steps-0000000040-best-000004.pt", "best-000004.pt"])
@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "gone"])
def test_damage_falls_back_to_the_one_before(
    damaged: str, how: str, saved: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved.folder / damaged
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        content = {"cut": bytes(data[:-100]), "flipped": bytes(data), "empty": b""}[how]
        path.write_bytes(content)
    actual = saved.load_latest()
    assert actual is not None
    assert actual[0]["epoch"] == 3
    assert actual[1] is not None
    assert actual[1]["epoch"] == 2
    is_reported = "resumes from the previous checkpoint" in caplog.text
    assert is_reported or (how == "gone" and damaged.startswith("steps"))


def test_another_trials_checkpoint_is_refused(saved: Checkpoints) -> None:
    for other in (Checkpoints(saved.folder, "abd", 0), Checkpoints(saved.folder, "abc", 1)):
        with pytest.raises(ConfigError, match="This checkpoint belongs to"):
            other.load_latest()


def test_a_damaged_checkpoint_of_a_real_trial(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = config(drawn)
    runtime = Runtime("cpu", 1, shared_cache, tmp_path, checkpoint_seconds=0)
    uninterrupted = Trainer(trial, 0, runtime)
    list(uninterrupted.train_epochs())
    newest = sorted((tmp_path / "checkpoints").glob("steps-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    again = Trainer(trial, 0, runtime)
    assert again.epoch == 3
    assert [r.epoch for r in again.train_epochs()] == [4]
    for name, tensor in uninterrupted.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[name]), name
    with pytest.raises(ConfigError, match="This checkpoint belongs to"):
        Trainer(config(drawn, optimizer={"lr": 2e-3}), 0, runtime)
