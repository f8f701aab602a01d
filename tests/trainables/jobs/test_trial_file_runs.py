"""Processes side by side: what fails, what the machine breaks off, and what another one has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from filelock import FileLock

from tests.trainables.jobs import batches as made
from trainables.core.runtime import LOCK
from trainables.jobs import trial_file as files
from trainables.jobs.trial_file import (
    BatchSettings,
    list_pending,
    report,
    run_batch,
    run_processes,
    run_trial,
)
from trainables.machine.devices import list_devices
from trainables.words.errors import ConfigError

RUNNERS = "tests.trainables.jobs.runners"


def ran(settings: BatchSettings, count: int, processes: int = 1) -> int:
    """Run trials in processes of their own, and return the exit code."""
    entries = made.synthetic(count)
    run_processes(settings, list_pending(settings, entries), processes, ["cpu"])
    return report(settings, entries)


@pytest.mark.slow
def test_every_trial_ends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SYN_STARTS", str(tmp_path / "starts"))
    for _ in range(2):
        assert ran(made.settings(tmp_path), 3, processes=2) == 0
        assert "3 done, 0 failed, 0 left" in capfd.readouterr().out
        assert len((tmp_path / "starts").read_text().splitlines()) == 3
    for entry in made.synthetic(3):
        folder = tmp_path / "trials" / entry.trial_id
        result = files.read_result(folder)
        assert (result.config, result.config_hash) == (entry.job.config, entry.config_hash)
        assert [event["epoch"] for event in result.epochs] == [1, 2, 3]
        assert result.is_done
        assert not (folder / "checkpoints").exists()


def test_what_the_machine_breaks_off_is_left_and_no_failure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings, entries = made.settings(tmp_path, runner=f"{RUNNERS}:crowded"), made.synthetic(2)
    run_batch(settings, list_pending(settings, entries))
    assert report(settings, entries) == 1
    output = capfd.readouterr()
    assert output.err.count("out of memory") == 2 and "0 failed, 2 left" in output.out
    assert not list(tmp_path.glob("trials/*/result.jsonl"))


@pytest.mark.slow
def test_a_full_disk_ends_the_batch(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space is left"):
        ran(made.settings(tmp_path, runner=f"{RUNNERS}:full"), 3)


def test_a_failure_is_a_result_until_it_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings, entries = made.settings(tmp_path), made.synthetic(2)
    monkeypatch.setenv("SYN_FAIL", "1e-4")  # all but the first
    events = [run_trial(settings, entry) for entry in list_pending(settings, entries)]
    assert [event and event["event"] for event in events] == ["final", "failed"]
    monkeypatch.delenv("SYN_FAIL")
    assert list_pending(settings, entries) == [] and report(settings, entries) == 1
    text = capfd.readouterr().out
    assert "1 done, 1 failed, 0 left" in text
    assert "TrialFailure: metric: the loss is not finite at step 3" in text
    next(tmp_path.glob(f"trials/{entries[1].trial_id}/result.jsonl")).unlink()
    (pending,) = list_pending(settings, entries)
    assert run_trial(settings, pending) and report(settings, entries) == 0


def test_a_trial_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    entry, settings = made.synthetic(1)[0], made.settings(tmp_path)
    folder = tmp_path / "trials" / entry.trial_id
    folder.mkdir(parents=True)
    with FileLock(folder / LOCK, thread_local=False):
        assert run_trial(settings, entry) is None and report(settings, [entry]) == 1
    assert run_trial(settings, entry) and report(settings, [entry]) == 0
    assert run_trial(settings, entry) is None, "it is not run twice"


def test_processes_take_the_gpus_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_devices("cpu") == ["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert list_devices("cuda") == list_devices("auto") == ["cuda:0", "cuda:1"]
    assert list_devices("cuda:1") == ["cuda:1"]
    with pytest.raises(ConfigError, match="cuda:7"):
        list_devices("cuda:7")
