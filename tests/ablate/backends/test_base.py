"""Whatever runs the jobs, a sweep ends with the same results; a backend is one class."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate.backends.base import BACKENDS, LOST, Backend
from ablate.cli.main import main
from ablate.engine.driver import run_plan
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from tests.ablate import specs
from tests.ablate.backends.batch.sweeps import facts
from tests.ablate.driven import RUNNER, dispatch, drain
from trainables.jobs.locked_job import RETRIES, Event, LockedJob
from trainables.jobs.request import Job


class InThreads(Backend):
    """Two jobs at once, each in a thread; whose first attempt the machine ends, if told."""

    slots = 2
    losses = 0

    def start(self, job: Job) -> None:
        threading.Thread(target=self._run, args=(job,), daemon=True).start()

    @property
    def events(self) -> queue.SimpleQueue[tuple[str, list[Event]]]:
        return self.__dict__.setdefault("_events", queue.SimpleQueue())

    def _run(self, job: Job) -> None:
        attempt = LockedJob(job, RUNNER, clean=True)
        try:
            self.events.put((job.trial_id, attempt.receive_events(60.0)))
        finally:
            attempt.close()

    def receive_events(self) -> Iterator[tuple[str, list[Event]] | None]:
        while True:
            try:
                trial_id, events = self.events.get(timeout=0.1)
            except queue.Empty:
                yield None
                continue
            if self.losses > self.machine_faults[trial_id]:
                events = [{"event": LOST, "reason": "the node is gone"}]
            yield trial_id, events

    def stop(self) -> None:
        """Threads end by themselves."""


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> type[InThreads]:
    monkeypatch.setitem(BACKENDS._components, "threads", InThreads)
    monkeypatch.setattr(InThreads, "losses", 0)
    return InThreads


def settings(out: Path, backend: str, **more: Any) -> Settings:
    return Settings(out, out, Request(1, 0, "cpu"), runner=RUNNER, backend=backend, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    drain(dispatch(specs.plan(), folder))
    return facts(folder)


@pytest.mark.parametrize("name", ["process", "threads"])
def test_a_sweep_ends_as_any_other(
    name: str, tmp_path: Path, whole: dict[str, Any], backend: type[InThreads]
) -> None:
    outcome = run_plan(specs.plan(), settings(tmp_path, name))
    assert outcome.is_finished and not outcome.failed
    assert facts(tmp_path)["trials"] == whole["trials"]
    assert run_plan(specs.plan(), settings(tmp_path, name)).trained == 0


def test_jobs_that_the_machine_ends_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: type[InThreads]
) -> None:
    grid = {**specs.spec(), "studies": {"grid": specs.SPEC["studies"]["grid"]}}
    monkeypatch.setattr(backend, "losses", RETRIES)
    assert run_plan(specs.plan(grid), settings(tmp_path / "a", "threads")).is_finished
    monkeypatch.setattr(backend, "losses", RETRIES + 1)
    outcome = run_plan(specs.plan(grid), settings(tmp_path / "b", "threads"))
    reason = f"the machine: the node is gone (given up after {RETRIES + 1} attempts)"
    assert set(outcome.lost.values()) == {reason} and not outcome.is_finished


def test_a_machine_fault_in_this_process_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYN_OSERROR", "1")
    assert run_plan(specs.plan(), settings(tmp_path, "process")).is_finished


def test_the_budget_ends_a_run(tmp_path: Path) -> None:
    outcome = run_plan(specs.plan(), settings(tmp_path, "process", budget=0.0))
    assert outcome.out_of_time and outcome.trained == 0


def test_an_unknown_backend_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `ablate run --backend NAME`."""
    (tmp_path / "spec.yaml").write_text(json.dumps(specs.spec()))
    words = [str(tmp_path / "spec.yaml"), "--backend", "proces", "--out", str(tmp_path / "out")]
    assert main(["run", *words]) == 2
    text = capsys.readouterr().err
    assert "--backend: " in text and "'proces'" in text and "process" in text
    assert not (tmp_path / "out").exists()
