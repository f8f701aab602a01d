"""Processes side by side: what fails, what the machine breaks off, and what another one has."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from tests.trainables.jobs.batch import made
from trainables.core.trial_folder import TrialFolder
from trainables.errors import ConfigError
from trainables.jobs.attempt import RETRIES
from trainables.jobs.batch import files, runner
from trainables.jobs.batch.runner import Batch, FullDisk, Here
from trainables.machine.devices import side_by_side

RUNNERS = "tests.trainables.jobs.batch.runners"


def ran(here: Here, count: int, processes: int = 1) -> Batch:
    batch = Batch(here, made.synthetic(count))
    batch.run(processes, ["cpu"])
    return batch


def test_every_trial_ends_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYN_STARTS", str(tmp_path / "starts"))
    batch = ran(made.here(tmp_path), 5, processes=2)
    assert (batch.done, batch.failed, batch.left) == (5, {}, {}) and batch.report() == 0
    assert len((tmp_path / "starts").read_text().splitlines()) == 5
    for entry in made.synthetic(5):
        folder = tmp_path / "trials" / entry.trial_id
        result = files.read_result(folder)
        assert (result.config, result.config_hash) == (entry.job.config, entry.config_hash)
        assert [event.epoch for event in result.epochs] == [1, 2, 3]
        assert result.last.event == "final"
        assert not (folder / "checkpoints").exists() and not (folder / "epochs.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SYN_KILL", "SYN_OSERROR"])
def test_what_the_machine_ends_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(how, "1")  # at the first start of every trial
    batch = ran(made.here(tmp_path), 2)
    assert batch.done == 2 and not batch.left and capfd.readouterr().err.count(": machine: ") == 2


@pytest.mark.parametrize("how", ["broken", "crowded"])
def test_what_the_machine_ends_always_is_left_and_no_failure(tmp_path: Path, how: str) -> None:
    batch = ran(made.here(tmp_path, runner=f"{RUNNERS}:{how}"), 1)
    (reason,) = batch.left.values()
    assert f"given up after {RETRIES + 1} attempts" in reason and batch.report() == 1
    assert not batch.failed and not list(tmp_path.glob("trials/*/result.jsonl"))


def test_a_full_disk_ends_the_batch(tmp_path: Path) -> None:
    with pytest.raises(FullDisk, match="No space left"):
        ran(made.here(tmp_path, runner=f"{RUNNERS}:full"), 3)


def test_a_failure_is_a_result_until_it_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYN_FAIL", "1e-4")  # all but the first
    batch = ran(made.here(tmp_path), 2)
    assert batch.done == 1 and list(batch.failed.values()) == [
        "TrialFailure: metric: the loss is not finite at step 3"
    ]
    monkeypatch.delenv("SYN_FAIL")
    assert ran(made.here(tmp_path), 2).failed == batch.failed
    again = ran(made.here(tmp_path, retry_failed=True), 2)
    assert again.done == 2 and not again.failed


def test_a_study_of_equal_configuration_errors_stops(tmp_path: Path) -> None:
    """Else a fault of this machine becomes a failure of every trial."""
    batch = ran(made.here(tmp_path, runner=f"{RUNNERS}:misconfigured"), 8)
    assert len(batch.failed) == 3 and len(batch.left) == 5
    reasons = batch.left.values()
    assert all("rates stopped after 3 equal configuration errors" in each for each in reasons)


@pytest.mark.slow
def test_a_trial_in_other_hands_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TrialFolder(tmp_path / "trials" / made.synthetic(1)[0].trial_id)
    folder.path.mkdir(parents=True)
    lock = FileLock(folder.lock, thread_local=False)
    lock.acquire()
    release = threading.Timer(4.0, lock.release)
    release.start()
    began = time.monotonic()
    assert ran(made.here(tmp_path), 2, processes=2).done == 2 and time.monotonic() - began > 3
    release.join()
    monkeypatch.setitem(runner.LIMITS, "busy", 0)
    (folder.path / files.RESULT_NAME).unlink()
    with lock:
        (reason,) = ran(made.here(tmp_path), 1).left.values()
    assert "locked by another process" in reason


def test_processes_take_the_gpus_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert side_by_side("cpu") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert side_by_side("cuda") == side_by_side("auto") == ["cuda:0", "cuda:1"]
    assert side_by_side("cuda:1") == ["cuda:1"]
    with pytest.raises(ConfigError, match="cuda:7"):
        side_by_side("cuda:7")
    devices: list[str] = []

    class Fake:
        entry: Any = None

        def __init__(self, here: Here) -> None:
            devices.append(here.device)

        def start(self, entry: Any) -> None:
            self.entry = entry

    monkeypatch.setattr(runner, "Worker", Fake)
    Batch(made.here(tmp_path), made.synthetic(4))._hand_out(4, ["cuda:0", "cuda:1"])
    assert devices == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
