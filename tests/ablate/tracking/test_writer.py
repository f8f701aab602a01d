"""The process that writes to MLflow may be killed, hang, fail or wait: the sweep goes on."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from ablate.ledger.ledger import Ledger
from ablate.tracking.store import store_key
from ablate.tracking.tracker import TrackingError
from ablate.tracking.writer import Writer
from tests.ablate.tracking.store import Inside, assert_complete, children, runs


def test_a_killed_driver_leaves_nothing_running(sweep: Any) -> None:
    trials = sweep.plan(seeds=1)[:6]
    sweep.finish(trials[:3])
    code = f"""
import os, time
from ablate.ledger.ledger import Ledger
from ablate.ledger.owner import Owner
from ablate.tracking.tracker import Tracker
with Ledger({str(sweep.ledger_path)!r}) as ledger:
    for trial in {trials[3:]!r}:
        ledger.claim(trial, "0" * 64, 0, {{"a": 1}}, Owner.me())
        ledger.record_epochs(
            trial, [{{"epoch": 1, "steps": 1, "seconds": 1.0, "metrics": {{"val/map_at_r": 0.5}}}}])
    tracker = Tracker(ledger.path, {sweep.uri!r}, {sweep.sweep_id!r}, "ddml", live_seconds=0)
    tracker.start()
    for trial in {trials[3:]!r}:
        tracker.notify(trial)
    while len(ledger.mlflow_runs("sqlite:///{sweep.folder}/mlflow.db")) < 6:
        time.sleep(0.01)
os._exit(9)
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert (result.returncode, result.stdout) == (9, b""), result.stderr
    deadline = time.monotonic() + 60
    while "RUNNING" in {run.info.status for run in runs(sweep)}:  # its writer lives on, and ends
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert_complete(sweep, trials)
    assert {children(sweep)[t].info.status for t in trials[3:]} == {"KILLED"}
    parent = next(run for run in runs(sweep) if run.data.tags["ablate.kind"] == "sweep")
    assert parent.info.status == "KILLED"
    with Ledger(sweep.ledger_path) as ledger:
        assert {ledger.trial(trial)["status"] for trial in trials[3:]} == {"interrupted"}
    sweep.track()
    assert_complete(sweep, trials)
    assert len(runs(sweep)) == len(trials) + 1


def test_ctrl_c_and_sigterm_do_not_end_the_writer(sweep: Any) -> None:
    trials = sweep.plan(seeds=1)[:5]
    tracker = sweep.tracker()
    tracker.start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(tracker.process_id, number)
    sweep.finish(trials)
    assert tracker.close()
    assert_complete(sweep, trials)


def test_a_password_goes_to_mlflow_alone(
    sweep: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nobody listens at this server: what libraries say of it is told and logged."""
    uri, word = "http://me:s3cr3t-w0rd@127.0.0.1:9", "s3cr3t-w0rd"
    trials = sweep.plan(seeds=1)[:2]
    sweep.finish(trials)
    with Ledger(sweep.ledger_path) as ledger:  # of the time when it was kept with the password
        ledger.put_mlflow_run(uri, sweep.sweep_id, trials[0], "0" * 32)
    tracker = sweep.tracker(uri, drain_seconds=0.5, remedy="`ablate ledger replay --out x`")
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        tracker.start()
        assert word not in " ".join(psutil.Process(tracker.process_id).cmdline())
        assert not tracker.close()
    assert "http://me:***@127.0.0.1:9 is away" in caplog.text and word not in caplog.text
    assert "`ablate ledger replay --out x` writes it" in caplog.messages[-1]
    with Ledger(sweep.ledger_path) as ledger:
        assert [row["run_id"] for row in ledger.mlflow_runs(store_key(uri))] == ["0" * 32]
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert word.encode() not in path.read_bytes(), path


def test_a_killed_writer_is_replaced(sweep: Any, caplog: pytest.LogCaptureFixture) -> None:
    trials = sweep.plan(seeds=1)[:5]
    tracker = sweep.tracker()
    tracker.start()
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        os.kill(tracker.process_id, signal.SIGKILL)
        sweep.finish(trials)
        for trial in trials:
            tracker.notify(trial)
        assert tracker.close()
    assert "was killed" in caplog.text
    assert_complete(sweep, trials)


def test_a_bug_in_the_writer_reaches_the_user(sweep: Any, caplog: pytest.LogCaptureFixture) -> None:
    sweep.plan(seeds=1)
    sweep.sweep_id = "no such sweep"  # a KeyError in the process
    tracker = sweep.tracker()
    with caplog.at_level(logging.WARNING, "ablate.tracking"):
        tracker.start()
        with pytest.raises(TrackingError, match=r"KeyError.*no such sweep.*ledger replay"):
            tracker.close()
    assert "MLflow tracking stopped: KeyError" in caplog.text
    assert "Traceback" in tracker.log_path.read_text()


def test_a_writer_that_hangs_does_not_hold_up_the_sweep(sweep: Any) -> None:
    """Stopped, it reads nothing: more is told than the pipe holds."""
    trials = sweep.plan(seeds=1)[:5]
    sweep.finish(trials)
    tracker = sweep.tracker()
    tracker.start()
    os.kill(tracker.process_id, signal.SIGSTOP)
    began = time.monotonic()
    for i in range(20_000):
        tracker.notify(trials[i % 5])
    assert time.monotonic() - began < 10
    os.kill(tracker.process_id, signal.SIGCONT)
    assert tracker.close()
    assert_complete(sweep, trials)


def test_a_writer_waits_for_another_and_says_so(
    sweep: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.tracking.runs.LOCK_SECONDS", 0.2)
    trials = sweep.plan(seeds=1)[:3]
    sweep.finish(trials)
    with Ledger(sweep.ledger_path) as ledger:
        other = Writer(ledger, sweep.uri, sweep.sweep_id, "ddml")
    tracker = Inside(sweep)
    with caplog.at_level(logging.WARNING, "ablate.tracking"), other.lock:
        tracker.start()
        time.sleep(0.5)
        assert "another process is writing this sweep's MLflow runs" in caplog.text
        assert not children(sweep)
    assert tracker.close()
    assert_complete(sweep, trials)
