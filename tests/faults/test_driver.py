"""What may happen to a sweep's driver and its workers, and what must be true afterwards."""

from __future__ import annotations

import collections
import os
import random
import re
import signal
import subprocess
import time
from typing import Any

import psutil
import pytest

from tests.ablate.synthetic import fault_of
from tests.faults.driver import ERROR, SPEC, descendants, runs
from tests.faults.sweeps import Sweep, assert_whole
from tests.steps import steps
from trainables.machine.processes import count_cores

ASYNCHRONOUS: list[dict[str, Any]] = [
    {"round": "asynchronous", "scheduler": {"name": "asha"}},
    {"round": "asynchronous"},
]


@pytest.mark.slow
def test_a_run_without_budget_and_one_without_work_train_nothing(
    sweep: Sweep, whole: list[dict[str, Any]]
) -> None:
    code, text = sweep.finish({"budget": 0.0})
    assert code == 1 and "budget is used up" in text and "missing" in text
    assert sweep.started() == []
    assert sweep.finish()[0] == 0
    assert_whole(sweep, whole)
    before = sweep.started()
    code, text = sweep.finish()
    assert code == 0 and "0 trials were trained" in text
    assert sweep.started() == before


@pytest.mark.slow
def test_all_workers_come_up_where_trials_are_shorter_than_their_start(sweep: Sweep) -> None:
    """Tune would give a free worker to the trial whose own worker is starting, and end that."""
    rates = [1e-3 + 1e-5 * number for number in range(40)]
    grid = {"g": {"design": "grid", "seeds": 1, "grid": {"optimizer.lr": rates}}}
    given = {"resources": {"cpus": count_cores() / 2, "gpus": 0}, "studies": {}}
    code, text = sweep.finish({"spec": given, "studies": grid}, SYN_SLEEP="0.1")
    assert code == 0, text
    workers = collections.Counter(at_work(sweep, trial) for trial in sweep.trials())
    assert len(workers) == 2 and min(workers.values()) > 5, workers


@pytest.mark.slow
def test_free_workers_that_die_cost_no_trial(sweep: Sweep) -> None:
    """Killed while a round's last trial runs; the trials of the next one find them dead."""
    slots = 4
    tune = {**SPEC["studies"]["tune"], "trials": 12, "round": slots, "startup": slots}
    given = {"resources": {"cpus": count_cores() / slots, "gpus": 0}}
    driver = sweep.start(
        {"spec": given, "studies": {"tune": tune}}, SYN_JITTER="1.5", SYN_SLEEP="0.1"
    )
    killed = 0
    while driver.poll() is None and killed < 2:
        time.sleep(0.02)
        if not (sweep.out / "ledger.sqlite").exists() or not sweep.started():
            continue
        busy = {t for t, row in sweep.trials().items() if row["status"] == "running"}
        if len(busy) == 1:
            for worker in descendants(driver.pid):
                if "JobTrainable" in title(worker) and worker.pid != at_work(sweep, *busy):
                    worker.kill()
                    killed += 1
    text, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0 and "given up" not in text, text
    assert killed and {row["status"] for row in sweep.trials().values()} == {"done"}


def at_work(sweep: Sweep, trial_id: str) -> int | None:
    """The process that says in a trial's log that it began it."""
    log = sweep.out / "trials" / trial_id / "trial.log"
    said = re.findall(r"begins \(\w+\) in process (\d+)", log.read_text() if log.exists() else "")
    return int(said[-1]) if said else None


def title(process: psutil.Process) -> str:
    """What a process calls itself now: Ray names its workers after their actors."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill_driver_somewhere(
    sweep: Sweep, chance: random.Random, more: dict[str, Any] | None = None
) -> None:
    """One driver, killed at a random instant of its life; its orphans end by themselves."""
    already = len(sweep.started())
    process = sweep.start(more, SYN_SLEEP="0.4")
    if chance.random() < 0.8:
        sweep.wait_for_starts(already + 1, process)
    time.sleep(chance.random() * 2.5)
    workers = trial_workers(process)
    process.kill()
    process.wait()
    # No orphan may go on writing: every worker ends without help.
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive, alive


def trial_workers(driver: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that run trials: what Ray forked from the driver and named after its class."""
    if driver.poll() is not None:
        return []
    return [child for child in descendants(driver.pid) if "Trainable" in title(child)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_of_the_driver(sweep: Sweep, whole: list[dict[str, Any]]) -> None:
    kills = steps(2, soak=20)
    chance = random.Random(kills)
    finished: collections.Counter[str] = collections.Counter()
    for _ in range(kills):
        done = (
            {t for t, row in sweep.trials().items() if row["status"] == "done"}
            if (sweep.out / "ledger.sqlite").exists()
            else set()
        )
        before = len(sweep.started())
        kill_driver_somewhere(sweep, chance)
        finished.update(
            t for t, mode, _ in sweep.started()[before:] if t in done and mode == "train"
        )
    done = {t for t, row in sweep.trials().items() if row["status"] == "done"}
    before = len(sweep.started())
    code, text = sweep.finish()
    assert code == 0, text
    finished.update(t for t, mode, _ in sweep.started()[before:] if t in done and mode == "train")
    assert not finished, "a finished trial was trained again"
    assert_whole(sweep, whole)
    # A kill takes back, of each trial under way, at most the epoch since its checkpoint.
    needed = sum(map(len, sweep.epochs().values()))
    assert needed <= sweep.trained_epochs() <= needed + kills * count_cores()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tune", ASYNCHRONOUS[: steps(1, soak=2)])
def test_sigkill_loses_and_repeats_nothing_in_asynchronous_mode(
    sweep: Sweep, tune: dict[str, Any]
) -> None:
    study = {**SPEC["studies"]["tune"], **tune, "trials": 12}
    more = {"spec": {"studies": {"tune": study}}}
    chance = random.Random(len(tune))
    kills = steps(2, soak=10)
    for _ in range(kills):
        kill_driver_somewhere(sweep, chance, more)
    code, text = sweep.finish(more)
    assert code == 0, text
    rows = sweep.rows()
    assert [row["cell"] for row in rows] == [f"{i:04d}" for i in range(12)], "exact budget"
    assert len({row["trial_id"] for row in rows}) == len(sweep.trials()) == 12
    known = sweep.epochs()
    assert all(found == list(range(1, len(found) + 1)) for found in known.values())
    needed = sum(map(len, known.values()))
    assert needed <= sweep.trained_epochs() <= needed + kills * count_cores()
    before = sweep.trained_epochs()
    assert sweep.finish(more)[0] == 0 and sweep.rows() == rows
    assert sweep.trained_epochs() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "Stopped by signal 15")],
)
def test_a_signal_stops_and_the_same_command_goes_on(
    sweep: Sweep, whole: list[dict[str, Any]], number: signal.Signals, code: int, words: str
) -> None:
    process = sweep.start(SYN_SLEEP="0.5")
    sweep.wait_for_starts(2, process)
    sweep.wait_for_epochs(2)  # of those under way, so that there is something to go on from
    process.send_signal(number)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == code, text
    assert (
        words in text and "***" not in text and "Continue with" in text and "Traceback" not in text
    )
    states = {row["status"] for row in sweep.trials().values()}
    assert "interrupted" in states and "running" not in states
    assert all(row["owner"] is None for row in sweep.trials().values())
    code, text = sweep.finish()
    assert code == 0, text
    assert_whole(sweep, whole)
    resumed = [first for _, mode, first in sweep.started() if mode == "train" and first > 1]
    assert resumed, "nothing resumed from a checkpoint"


@pytest.mark.slow
def test_faults_of_the_machine_are_retried(sweep: Sweep, whole: list[dict[str, Any]]) -> None:
    """Of each trial one, by its id: its worker is killed, it hangs, or a disk fails; all take
    another time in each run."""
    faults = {"SYN_KILL": "1", "SYN_HANG": "1", "SYN_OSERROR": "1"}
    code, text = sweep.finish({"stuck_after": 5.0}, **faults, SYN_JITTER="0.4")
    assert code == 0, text
    assert_whole(sweep, whole)
    met = {trial: fault_of(trial, list(faults)) for trial in sweep.trials()}
    assert set(met.values()) == {*faults}
    for trial, fault in met.items():
        log = (sweep.out / "trials" / trial / "trial.log").read_text()
        assert (fault == "SYN_HANG") == ("Timeout (0:00:05)!" in log and " in _misbehave" in log)


@pytest.mark.slow
def test_a_deterministic_failure_is_a_fact(sweep: Sweep) -> None:
    code, text = sweep.finish(SYN_FAIL="1e-3")
    assert code == 1, text
    failed = {t: row for t, row in sweep.trials().items() if row["status"] == "failed"}
    assert failed and "failed" in text
    for row in failed.values():
        assert row["reason"] == "TrialFailure: metric: the loss is not finite at step 3"
    starts = collections.Counter(t for t, _, _ in sweep.started())
    assert all(starts[t] == 1 for t in failed), "a deterministic failure was retried"
    assert sweep.finish()[0] == 1
    assert collections.Counter(t for t, _, _ in sweep.started()) == starts
    assert sweep.finish({"retry_failed": True})[0] == 0
    assert not [row for row in sweep.trials().values() if row["status"] == "failed"]


@pytest.mark.slow
def test_a_closed_terminal_stops_as_a_signal_does(sweep: Sweep) -> None:
    """The driver is told by SIGHUP, and can say nothing any more."""
    ours, terminal = os.openpty()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup the driver would ignore it
    process = sweep.start({"track": True}, terminal=terminal, SYN_SLEEP="0.5")
    signal.signal(signal.SIGHUP, before)
    os.close(terminal)
    sweep.wait_for_starts(2, process)
    sweep.wait_for_epochs(2)
    os.close(ours)
    code, error = process.wait(120), sweep.out / ERROR
    assert code == 129, error.read_text() if error.exists() else sweep.trials()
    assert {row["status"] for row in sweep.trials().values()} & {"interrupted"}
    assert all(row["owner"] is None for row in sweep.trials().values())
    assert "KILLED" in runs(sweep) and "RUNNING" not in runs(sweep)
