"""Processes side by side: what fails, what the machine breaks off, and what another one has."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from tests.trainables.jobs.batch import made
from trainables.errors import ConfigError
from trainables.jobs.attempt import RETRIES
from trainables.jobs.batch import files, runner
from trainables.jobs.batch.runner import Batch, Ended, FullDisk, Here, find_result
from trainables.machine.devices import side_by_side

RUNNERS = "tests.trainables.jobs.batch.runners"


def ran(here: Here, count: int, processes: int = 2) -> tuple[Ended, Counter[str]]:
    told: Counter[str] = Counter()
    done = Batch(here, processes, ["cpu"], lambda _, event: told.update([event["event"]]))
    return done.run(made.synthetic(count)), told


def test_every_trial_ends_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYN_STARTS", str(tmp_path / "starts"))
    ended, told = ran(made.here(tmp_path), 5)
    assert (ended.done, ended.failed, ended.left) == (5, {}, {}) and told["final"] == 5
    assert len((tmp_path / "starts").read_text().splitlines()) == 5
    for entry in made.synthetic(5):
        folder = files.trial_folder(tmp_path, entry.trial_id)
        found, epochs, last = files.read_result(folder)
        assert found.config == entry.job.config and found.config_hash == entry.config_hash
        assert [event["epoch"] for event in epochs] == [1, 2, 3]
        assert last["event"] == "final" and "history" not in last
        assert not (folder / "checkpoints").exists() and not (folder / "epochs.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SYN_KILL", "SYN_OSERROR"])
def test_what_the_machine_ends_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv(how, "1")  # at the first start of every trial
    ended, told = ran(made.here(tmp_path), 2)
    assert ended.done == 2 and told["machine"] == 2 and not ended.left


@pytest.mark.parametrize("how", ["broken", "crowded"])
def test_what_the_machine_ends_always_is_left_and_no_failure(tmp_path: Path, how: str) -> None:
    ended, told = ran(made.here(tmp_path, runner=f"{RUNNERS}:{how}"), 1)
    (reason,) = ended.left.values()
    assert f"given up after {RETRIES + 1} attempts" in reason and told["machine"] == RETRIES + 1
    assert not ended.failed and not list(tmp_path.glob("trials/*/result.jsonl"))


def test_a_full_disk_ends_the_batch(tmp_path: Path) -> None:
    with pytest.raises(FullDisk, match="No space left"):
        ran(made.here(tmp_path, runner=f"{RUNNERS}:full"), 3)


def test_a_failure_is_a_result_with_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYN_FAIL", "1e-4")  # all but the first
    ended, _ = ran(made.here(tmp_path), 2)
    assert ended.done == 1 and list(ended.failed.values()) == [
        "TrialFailure: metric: the loss is not finite at step 3"
    ]
    monkeypatch.delenv("SYN_FAIL")
    (entry,) = (e for e in made.synthetic(2) if str(e) in ended.failed)
    assert find_result(made.here(tmp_path), entry) is not None
    assert find_result(made.here(tmp_path, retry_failed=True), entry) is None
    again, _ = ran(made.here(tmp_path, retry_failed=True), 2)
    assert again.done == 2 and not again.failed


def test_a_study_of_equal_configuration_errors_stops(tmp_path: Path) -> None:
    """Else a fault of this machine becomes a failure of every trial."""
    ended, _ = ran(made.here(tmp_path, runner=f"{RUNNERS}:misconfigured"), 8, processes=1)
    assert len(ended.failed) == 3 and len(ended.left) == 5
    assert all("rates stopped after 3 equal configuration errors" in r for r in ended.left.values())


@pytest.mark.slow
def test_a_trial_in_other_hands_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = made.synthetic(1)[0]
    folder = files.trial_folder(tmp_path, entry.trial_id)
    folder.mkdir(parents=True)
    lock = FileLock(folder / ".lock", thread_local=False)
    lock.acquire()
    release = threading.Timer(4.0, lock.release)
    release.start()
    began = time.monotonic()
    ended, _ = ran(made.here(tmp_path), 2)
    assert ended.done == 2 and time.monotonic() - began > 3
    release.join()
    monkeypatch.setattr(runner, "BUSY_SECONDS", 0.0)
    (folder / files.RESULT_NAME).unlink()
    with lock:
        ended, _ = ran(made.here(tmp_path), 1)
    assert list(ended.left.values()) == ["another process is at it"]


def test_processes_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert side_by_side("cpu") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert side_by_side("cuda") == side_by_side("auto") == ["cuda:0", "cuda:1", "cuda:2"]
    assert side_by_side("cuda:1") == ["cuda:1"]
    with pytest.raises(ConfigError, match="cuda:7"):
        side_by_side("cuda:7")


def test_each_process_keeps_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    class Fake:
        alive = True
        entry: Any = None

        def __init__(self, here: Here) -> None:
            given.append(here.device)

    monkeypatch.setattr(runner, "Worker", Fake)
    made_ = Batch(made.here(tmp_path), 4, ["cuda:0", "cuda:1"], lambda *_: None)
    made_._queue.extend(made.synthetic(4))
    Fake.give = lambda self, entry: setattr(self, "entry", entry)  # type: ignore[attr-defined]
    made_._hand_out()
    assert given == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
