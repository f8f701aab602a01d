"""A job whose trial several processes train: its events, its folder, and what ends it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainables.core_trials import comparable, config, job
from trainables.core.runtime import Runtime
from trainables.jobs.distributed import assign_runtime
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
from trainables.machine.devices import resolve_device
from trainables.words.errors import ConfigError

FINETUNE: dict[str, Any] = {"backbone": {"mode": "finetune"}, "training": {"epochs": 3}}


def by(count: int, given: Job) -> Job:
    return replace(given, runtime=replace(given.runtime, processes=count))


def others() -> list[psutil.Process]:
    """Processes beside this one that train its trial."""
    children = psutil.Process().children()
    return [child for child in children if "trainables.jobs.distributed" in child.cmdline()]


@pytest.mark.slow
def test_one_is_ended_and_the_trial_goes_on_with_others(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    """The machine's fault, which is tried again, by another number; the result is that of one."""
    trial = config(drawn, **FINETUNE)
    (*_, final) = run_job(job(trial, shared_cache, tmp_path / "one"))
    job_request = job(trial, shared_cache, tmp_path / "two")
    events = run_job(by(2, job_request))
    assert next(events)["epoch"] == 1
    (other,) = others()
    other.kill()
    with pytest.raises(OSError, match=r"Process 1 of the trial ended with exit code -9"):
        list(events)
    assert others() == []

    *epochs, again = run_job(by(2, job_request))
    assert epochs and epochs[0]["epoch"] == 2, "the first was saved"
    assert others() == []
    assert again["provenance"]["processes"] == 2
    one, two = comparable(final), comparable(again)
    for expected_epoch, its in zip(one.pop("metrics"), two.pop("metrics"), strict=True):
        assert its["train/loss"] == pytest.approx(expected_epoch["train/loss"], rel=1e-3)
    assert one.keys() == two.keys()
    assert (tmp_path / "two" / "best.safetensors").exists()
    assert [event["event"] for event in run_job(by(2, job_request))] == ["final"]


@pytest.mark.slow
def test_what_one_cannot_do_none_does(drawn: Path, shared_cache: Path, tmp_path: Path) -> None:
    job_request = job(config(drawn), shared_cache, tmp_path)
    with pytest.raises(ConfigError, match=r"2 processes .*backbone.mode: frozen"):
        list(run_job(by(2, job_request)))
    assert others() == []


def test_threads_and_the_folder_are_shared_out(tmp_path: Path) -> None:
    runtime = Runtime("cpu", 5, tmp_path, tmp_path / "t", processes=2)
    first, second = (assign_runtime(runtime, rank) for rank in range(2))
    assert (first.threads, second.threads) == (2, 2)
    assert (first.trial_dir, second.trial_dir) == (tmp_path / "t", None)
    if resolve_device("auto").type == "cpu":
        with pytest.raises(ConfigError, match="device: cuda is none"):
            assign_runtime(replace(runtime, device="cuda"), 0)
