"""`ablate status`, `trials`, `logs` and `ledger show`, of a sweep driven here without Ray."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ablate.backends.ray import supervisor
from ablate.cli.main import main
from ablate.cli.run import describe_ending
from ablate.engine.driver import run_plan
from ablate.engine.driver_status import POLL_SECONDS, DriverStatusFile, list_drivers
from ablate.engine.progress import NodeList, build_study_rows, list_running_trials
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.ledger.ledger import Owner
from ablate.sweep.job_queue import JobQueue
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, finish, table

ROOT = Path(__file__).resolve().parents[3]
RUNNER = "tests.ablate.synthetic:run_job"
Captured = pytest.CaptureFixture[str]


def test_machines_of_one_name_are_told_apart() -> None:
    machines = NodeList()
    machines.update([["0123456789", "node", 1], ["abcdefghij", "node", 1], ["id", "other", 1]])
    names = [node.name for node in machines.list_nodes([])]
    assert names == ["node 012345", "node abcdef", "other"]


def command(out: Path, *words: str) -> int:
    return main([*words, "--out", str(out)])


def presence(made: JobQueue, out: Path, asked: threading.Event) -> DriverStatusFile:
    """As a run that has not started Ray yet."""
    status = DriverStatusFile(out, made.owner, made.sweep_id, "small", asked.set)
    status.publish(build_study_rows(made, 1), trials=(), slots=None)
    return status


def test_a_sweep_under_way_is_told_from_files(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = dispatch(specs.plan(), tmp_path), threading.Event()
    monkeypatch.setenv("SYN_FAIL", "1e-9")
    first = made.claim_next_job()
    assert first is not None
    finish(made, first.trial_id)
    second, third = made.claim_next_job(), made.claim_next_job()
    assert second is not None and third is not None
    here = presence(made, tmp_path, asked)
    machines = NodeList(node_by_trial={second.trial_id: "id1", "over": "id2", "elsewhere": "gone"})
    machines.update([["id1", "one", 1], ["id2", "two", 1], ["id3", "head", 0]])
    here.publish(
        build_study_rows(made, 2),
        list_running_trials(made, 2),
        2,
        machines.list_nodes(list_running_trials(made, 2)),
    )
    with here:
        assert command(tmp_path, "status") == 0
        text = capsys.readouterr().out
        assert re.search(rf"sweep small \({made.sweep_id}\): running for \d+ s ", text)
        assert (
            f"process {made.owner.pid}" in text
            and "; 1 of 2 slots in use, 1 about to start" in text
        )
        assert "tune: 0/6 done, " in text and "1 failed" in text
        assert f"at work: {second.trial_id} (" in text and "epoch 0 of 3" in text
        assert "  node one: 1 of 1 slots in use\n  node two: 0 of 1 slots in use\n" in text
        assert text.count(", on one\n") == 1 and ", on two" not in text
        reason = "TrialFailure: metric: the loss is not finite at step 3"
        assert f"failed: 1 × {reason} (such as trial {first.trial_id})" in text
        assert command(tmp_path, "status", "--json") == 0
        (sweep,) = json.loads(capsys.readouterr().out)["sweeps"]
        (driver,) = sweep["drivers"]
        assert [trial["trial_id"] for trial in driver["trials"]] == [
            second.trial_id,
            third.trial_id,
        ]
        assert driver["slots"] == 2 and not driver["stopping"]
        assert driver["nodes"] == [
            {"name": "one", "slots": 1, "trials": [second.trial_id]},
            {"name": "two", "slots": 1, "trials": []},
        ]
        assert [trial["node"] for trial in driver["trials"]] == ["one", None]
    assert list_drivers(tmp_path) == [] and not asked.is_set()
    made.interrupt_all("stopped by the test")
    assert command(tmp_path, "status", "small") == 0
    text = capsys.readouterr().out
    assert f"sweep small ({made.sweep_id}): not running" in text
    assert "tune: 0 of 3 known trials done, 1 failed, 2 without a result" in text


def test_who_asks_is_heard_once_and_a_dead_driver_is_none(tmp_path: Path, capsys: Captured) -> None:
    made, asked = dispatch(specs.plan(), tmp_path), threading.Event()
    folder = tmp_path / "drivers"
    gone = {"owner": str(Owner("elsewhere", 1, 1.0)), "sweep_id": "x", "name": "x", "at": 1.0}
    more = {"began": 1.0, "slots": None, "trials": [], "studies": [], "stopping": False}
    folder.mkdir()
    (folder / "x-1.json").write_text(json.dumps(gone | more))
    (folder / "y.json").write_text(json.dumps(gone | {"later": 1}))  # of another version
    assert command(tmp_path, "stop") == 2
    line = capsys.readouterr().err
    assert "no run is under way" in line and "`ablate status`" in line and line.count("\n") == 1
    with presence(made, tmp_path, asked):
        names = {each.name for each in folder.iterdir()}
        assert names & {"x-1.json", "y.json"} == {"y.json"}
        assert command(tmp_path, "stop", "another") == 2
        assert command(tmp_path, "stop", "small", "--wait", "0") == 1
        said = capsys.readouterr()
        assert "asked sweep small" in said.out and "has not ended yet" in said.err
        assert asked.wait(20 * POLL_SECONDS)
        end = time.monotonic() + 20 * POLL_SECONDS
        while True:  # it stops first, and writes that it does then
            assert command(tmp_path, "status") == 0
            shown = capsys.readouterr().out
            assert "Ray is starting" in shown
            if "stopping, running for" in shown:
                break
            assert time.monotonic() < end, shown
            time.sleep(0.05)
    assert [each.name for each in folder.iterdir()] == ["y.json"]


def test_trials_and_their_logs(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = dispatch(specs.plan(), tmp_path)
    monkeypatch.setenv("SYN_FAIL", "5e-3")
    drain(made)
    known = table(made)
    assert command(tmp_path, "trials") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len({row["trial_id"] for row in known})
    assert all(" val/map_at_r 0." in line for line in lines if "  done  " in line)
    assert command(tmp_path, "trials", "--status", "failed") == 0
    failed = capsys.readouterr().out.splitlines()
    assert 0 < len(failed) < len(lines)
    assert all("  failed  " in line and "the loss is not finite" in line for line in failed)
    trial = failed[0].split()[0]
    assert command(tmp_path, "logs", trial) == 0
    log = capsys.readouterr().out.splitlines()
    assert "begins (train)" in log[0] and "the loss is not finite" in log[-1]
    assert command(tmp_path, "logs", trial, "--follow") == 0
    assert capsys.readouterr().out.splitlines() == log
    (tmp_path / "trials" / trial / "trial.log").unlink()
    assert command(tmp_path, "logs", trial) == 2
    assert "the trial is failed and has no log" in capsys.readouterr().err
    assert command(tmp_path, "logs", "nothing-like-it") == 2
    assert "`ablate trials` lists all ids" in capsys.readouterr().err


def test_all_that_is_known_of_a_trial(tmp_path: Path, capsys: Captured) -> None:
    made = dispatch(specs.plan(), tmp_path)
    drain(made)
    row = table(made)[0]
    trial = row["trial_id"]
    assert command(tmp_path, "ledger") == 0 and "done: " in capsys.readouterr().out
    assert command(tmp_path, "ledger", "show", trial[:10]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert list(shown)[:3] == ["trial_id", "status", "reason"] and shown["trial_id"] == trial
    assert shown["cells"] and shown["folder"] == str(tmp_path / "trials" / trial)
    assert shown["evaluations"]["val"]["map_at_r"] == row["val/map_at_r"]


def test_a_run_that_is_asked_to_stop_ends_as_by_ctrl_c_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another process, while the driver is at work; Ray's part is stood in for."""
    monkeypatch.setattr(
        supervisor, "COMMAND", (sys.executable, "-P", "-m", "tests.ablate.without_ray")
    )
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("LIVES", "work")
    monkeypatch.setenv("SYN_SLEEP", "0.3")
    settings = Settings(tmp_path, tmp_path, Request(1, 0, "cpu"), runner=RUNNER)
    code = f"""
import sys, time
from ablate.cli.main import main
from ablate.engine.driver_status import list_drivers
from pathlib import Path
while not any(each.trials for each in list_drivers(Path({str(tmp_path)!r}))):
    time.sleep(0.05)
sys.exit(main(["stop", "small", "--out", {str(tmp_path)!r}]))
"""
    asking = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    outcome = run_plan(specs.plan(), settings)
    assert asking.wait(60) == 0
    assert outcome.interrupted == signal.SIGINT and outcome.code == 130 and outcome.missing
    assert "Stopped by Ctrl-C or `ablate stop`" in describe_ending(outcome, tmp_path)
    assert not list((tmp_path / "drivers").iterdir())
    monkeypatch.setenv("SYN_SLEEP", "0")
    (tmp_path / "pids").unlink()
    assert run_plan(specs.plan(), settings).code == 0
