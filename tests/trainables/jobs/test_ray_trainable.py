"""The actor of a trial, as far as it needs no Ray that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from trainables.core.runtime import Runtime
from trainables.jobs import ray_trainable
from trainables.jobs.node_folder import copy_checkpoint
from trainables.jobs.ray_trainable import PAYLOAD, JobTrainable, wait_for_storage
from trainables.jobs.request import CheckpointStorage, Job, Leader, Payload
from trainables.machine.processes import host_name

CONFIG = {
    "optimizer": {"lr": 1e-3},
    "method": {"name": "plain"},
    "embedding": {"dim": 8},
    "training": {"epochs": 2},
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make an actor with a job, whose trial runs in a folder here."""
    monkeypatch.setattr(ray_trainable, "watch_driver", lambda _: None)
    monkeypatch.setattr(
        ray_trainable.ray,
        "get_runtime_context",
        lambda: SimpleNamespace(get_node_id=lambda: "a-node"),
    )
    (tmp_path / "trials").mkdir()
    leader = Leader(host_name(), os.getpid(), psutil.Process().create_time())

    def made(storage: CheckpointStorage | None, **more: Any) -> JobTrainable:
        runtime = Runtime("cpu", None, tmp_path, tmp_path / "trials" / "t", run="run")
        job = Job("t", CONFIG, 0, runtime, **more)
        payload = Payload(job, "tests.ablate.synthetic:run_job", True, leader, 0.0, None, storage)
        config = {PAYLOAD: payload.to_text(), "trial": "t"}
        actor = JobTrainable.__new__(JobTrainable)
        actor.setup(config)
        assert config == {"trial": "t"}, "Tune would send it back with every result"
        return actor

    return made


def events(result: dict[str, Any]) -> list[str]:
    return [event["event"] for event in json.loads(result["events"])]


def test_without_storage_a_step_is_what_the_trial_tells(work: Any, tmp_path: Path) -> None:
    actor = work(None)
    reports = [actor.step() for _ in range(3)]
    assert [events(item) for item in reports] == [["epoch"], ["epoch"], ["final"]]
    assert [item["done"] for item in reports] == [False, False, True]
    assert reports[0]["node"] == "a-node" and "should_checkpoint" not in reports[0]
    assert not (tmp_path / "trials/t/checkpoints").exists()


def test_the_end_is_stored_before_it_is_told(work: Any, tmp_path: Path) -> None:
    actor = work(CheckpointStorage(str(tmp_path / "there"), False, {}))
    reports: list[dict[str, Any]] = []
    while not (reports and reports[-1]["done"]):
        reports.append(actor.step())
        if reports[-1].get("should_checkpoint"):
            actor.save_checkpoint(str(tmp_path / "stored"))
    assert [name for item in reports for name in events(item)] == ["epoch", "epoch", "final"]
    assert reports[-2]["should_checkpoint"] and events(reports[-2]) == []
    assert (tmp_path / "stored" / "best.safetensors").exists()
    assert (tmp_path / "trials" / "t" / "best.safetensors").exists()


def test_a_step_returns_while_an_epoch_lasts(
    work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYN_SLEEP", "1.0")
    monkeypatch.setattr(ray_trainable, "STEP_SECONDS", 0.05)
    actor = work(CheckpointStorage(str(tmp_path / "there"), False, {}))
    assert events(actor.step()) == []
    actor.cleanup()
    assert actor._locked_job is None


def test_a_trial_goes_on_from_its_checkpoint_on_another_node(
    work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SYN_STARTS", str(tmp_path / "starts"))
    before = tmp_path / "before"
    (before / "checkpoints").mkdir(parents=True)
    (before / "checkpoints" / "epoch.json").write_text('{"epoch": 1}')
    copy_checkpoint(before, tmp_path / "there" / "trials" / "t.1" / "checkpoint_000000")
    actor = work(
        CheckpointStorage(str(tmp_path / "there"), True, {"t": ("trials/t.2", "trials/t.1")})
    )
    while not actor.step()["done"]:
        pass
    assert (tmp_path / "starts").read_text() == "t train 2\n"
    assert not (tmp_path / "trials" / "t").exists(), "a folder of the driver's was made"
    remaining = [path.name for path in (tmp_path / "cache/nodes/run/t").iterdir()]
    assert remaining == [".lock"], "a node's disk holds no whole sweep"


def test_a_storage_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_trainable, "PAUSE_SECONDS", 0.01)
    faults = [OSError("away"), OSError("away")]

    def ask() -> str:
        if faults:
            raise faults.pop()
        return "there"

    assert wait_for_storage(ask) == "there"
    monkeypatch.setattr(ray_trainable, "PATIENCE_SECONDS", 0.0)
    faults.append(OSError("it is away"))
    with pytest.raises(OSError, match=r"node .* the storage does not answer .it is away."):
        wait_for_storage(ask)
