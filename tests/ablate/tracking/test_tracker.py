"""The thread that writes to MLflow may hang, fail or wait, and its driver be killed: nothing is
lost, and nothing is held up."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ablate.ledger.ledger import Ledger
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrackingError, replay
from tests.ablate.tracking.store import assert_complete, children, finish_some, runs, wait_until


@pytest.mark.slow
def test_runs_of_a_killed_driver_are_written_by_the_next_command(sweep: Any) -> None:
    trials = sweep.plan(seeds=1)[:6]
    sweep.finish(trials[:3])
    code = f"""
import os, time
from ablate.ledger.ledger import Ledger
from ablate.ledger.ledger import Owner
from ablate.tracking.sync import MlflowTracker
from ablate.tracking.tracker import TrackerThread
from tests.ablate.synthetic import CONFIG
with Ledger({str(sweep.ledger_path)!r}) as ledger:
    for trial in {trials[3:]!r}:
        ledger.claim(trial, "0" * 64, 0, CONFIG, Owner.from_this_process())
        ledger.record_epochs(
            trial, [{{"epoch": 1, "steps": 1, "seconds": 1.0, "metrics": {{"val/map_at_r": 0.5}}}}])
    tracker = TrackerThread(ledger.path, MlflowTracker({sweep.uri!r}), {sweep.sweep_id!r})
    tracker.start()
    store = "sqlite:///{sweep.folder}/mlflow.db"
    while len(ledger.list_mlflow_runs(store, {sweep.sweep_id!r})) < 6:
        time.sleep(0.01)
os._exit(9)
"""
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 9
    with Ledger(sweep.ledger_path) as ledger:
        assert set(ledger.release_dead()) == set(trials[3:])
    sweep.track()
    assert_complete(sweep, trials)
    assert {children(sweep)[t].info.status for t in trials[3:]} == {"KILLED"}
    assert len(runs(sweep)) == len(trials) + 1


def test_a_password_goes_to_mlflow_alone(
    sweep: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nobody listens at this server: what libraries say of it is told and logged."""
    uri, password = "http://me:s3cr3t-w0rd@127.0.0.1:9", "s3cr3t-w0rd"
    finish_some(sweep, 2)
    tracker = sweep.tracker(uri, drain_seconds=0.5, remedy="`ablate ledger replay --out x`")
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        tracker.start()
        wait_until(lambda: "does not answer" in caplog.text)
        assert not tracker.close()
    assert (
        "http://me:***@127.0.0.1:9: the store does not answer" in caplog.text
        and password not in caplog.text
    )
    assert "`ablate ledger replay --out x` writes the 2 ended trials" in caplog.messages[-1]
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert password.encode() not in path.read_bytes(), path


def test_a_bug_in_the_thread_reaches_the_user(sweep: Any, caplog: pytest.LogCaptureFixture) -> None:
    sweep.plan(seeds=1)
    sweep.sweep_id = "no such sweep"  # a KeyError in the thread
    tracker = sweep.tracker()
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        tracker.start()
        with pytest.raises(TrackingError, match=r"KeyError.*no such sweep.*ledger replay"):
            tracker.close()
    assert "goes on without it: KeyError" in caplog.text and "Traceback" in caplog.text


def test_a_store_that_hangs_holds_up_neither_sweep_nor_end(
    sweep: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    trials = finish_some(sweep, 5)
    hangs, answers = threading.Event(), threading.Event()
    original = MlflowClient.log_batch

    def hang(self: Any, *args: Any, **kwargs: Any) -> None:
        hangs.set()
        assert answers.wait(60)
        original(self, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, "log_batch", hang)
    tracker = sweep.tracker(drain_seconds=0.2)
    tracker.start()
    assert hangs.wait(60)
    began = time.monotonic()
    for i in range(20_000):
        tracker.notify(trials[i % 5])
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        assert not tracker.close()
    assert time.monotonic() - began < 10
    assert "`ablate ledger replay` writes the 5 ended trials that MLflow lacks" in caplog.text
    answers.set()
    assert replay(sweep.ledger_path, MlflowTracker(sweep.uri), sweep.sweep_id) == (5, {})
    assert_complete(sweep, trials)


def test_a_trial_that_the_store_refuses_holds_up_no_other(
    sweep: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    trials = finish_some(sweep, 4)
    original = MlflowClient.log_batch

    def refuse(client: Any, run_id: str, *args: Any) -> None:
        if client.get_run(run_id).data.tags["ablate.trial_id"] == trials[1]:
            raise MlflowException.invalid_parameter_value("no")
        original(client, run_id, *args)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", refuse)
        tracker = sweep.tracker()
        with caplog.at_level(logging.WARNING, "ablate.tracking"):
            tracker.start()
            assert not tracker.close()
    (message,) = caplog.messages
    assert f"refused 1 of the sweep's trials, such as {trials[1]} (no)" in message
    assert "`ablate ledger replay`" in message
    running = [t for t, run in children(sweep).items() if run.info.status == "RUNNING"]
    assert running == [trials[1]]
    sweep.track()
    assert_complete(sweep, trials)
