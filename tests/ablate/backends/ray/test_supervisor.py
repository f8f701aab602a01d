"""Ray's process dies in all ways that there are, and a sweep goes on or says so; without Ray."""

from __future__ import annotations

import io
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ablate.backends.ray import supervisor
from ablate.backends.ray.supervisor import RESTARTS, RayStartError, Supervisor
from ablate.engine.progress import ProgressDisplay
from ablate.engine.resources import Request
from ablate.engine.settings import Settings
from ablate.ledger.schema import LedgerError
from tests.ablate import specs
from tests.ablate.driven import dispatch, drain, table
from trainables.jobs.locked_job import RETRIES
from trainables.machine.processes import list_session_processes

Made = tuple[Supervisor, io.StringIO]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    monkeypatch.setattr(
        supervisor, "COMMAND", (sys.executable, "-P", "-m", "tests.ablate.without_ray")
    )

    def make(lives: str, address: str | None = None, why: str = "") -> Made:
        monkeypatch.setenv("LIVES", lives)
        monkeypatch.setenv("WHY", why)
        plan, stream = specs.plan(), io.StringIO()
        sweep = dispatch(plan, tmp_path)
        request = Request(1, 0, "cpu")
        return Supervisor(
            plan,
            Settings(tmp_path, tmp_path, request, address=address),
            sweep,
            open_display=lambda parallel: ProgressDisplay(
                sweep, parallel, tmp_path / "log", stream
            ),
        ), stream

    return make


def lives(folder: Path) -> int:
    """How many there were; of none is anything left."""
    pids = [int(line) for line in (folder / "pids").read_text().split()]
    assert [list_session_processes(pid) for pid in pids] == [[]] * len(pids)
    return len(pids)


def states(made: Supervisor) -> set[tuple[str, Any]]:
    return {
        (row["status"], row["owner"]) for row in made.job_queue.ledger.query("SELECT * FROM trials")
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    sweep = dispatch(specs.plan(), tmp_path_factory.mktemp("whole"))
    drain(sweep)
    return table(sweep)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ("", ""),
        ("raylet", "Ray is gone (Ray's raylet ended) and is started again"),
        ("abort", "Ray is gone (Ray's process ended) and is started again"),
    ],
)
def test_ray_is_started_once_more_and_the_sweep_ends_as_it_would_have(
    tmp_path: Path, made: Callable[..., Made], whole: list[dict[str, Any]], first: str, told: str
) -> None:
    sweep, said = made(f"{first} work")
    assert sweep.run() == ""
    assert table(sweep.job_queue) == whole and states(sweep) == {("done", None)}
    assert told in said.getvalue() and lives(tmp_path) == 1 + bool(first)


def test_a_second_death_ends_the_run_and_nothing_is_claimed(
    tmp_path: Path, made: Callable[..., Made]
) -> None:
    sweep, _ = made("abort raylet work")
    assert sweep.run() == "Ray's raylet ended"
    assert lives(tmp_path) == 1 + RESTARTS and states(sweep) == {("interrupted", None)}
    reason = sweep.job_queue.ledger.query("SELECT reason FROM trials")[0]["reason"]
    assert reason == "the machine: Ray is gone (Ray's raylet ended)"


def test_a_cluster_of_others_is_not_started_again(
    tmp_path: Path, made: Callable[..., Made]
) -> None:
    sweep, _ = made("abort work", "127.0.0.1:6379")
    assert sweep.run() == "Ray's process ended" and lives(tmp_path) == 1


@pytest.mark.parametrize(
    ("life", "reason", "address"),
    [
        ("unable", "OSError: no port is free", None),
        ("absent", "Ray's process ended", None),
        ("absent", "Ray's process ended", "127.0.0.1:6379"),
        ("late", "Ray does not answer", None),
    ],
)
def test_a_failed_first_start_is_told_once_and_not_repeated(  # noqa: PLR0917
    tmp_path: Path,
    made: Callable[..., Made],
    monkeypatch: pytest.MonkeyPatch,
    life: str,
    reason: str,
    address: str | None,
) -> None:
    if life == "late":
        monkeypatch.setattr(supervisor, "START_SECONDS", 2.0)
    sweep, said = made(f"{life} work work", address, why="OSError: no port is free\nand so on")
    with pytest.raises(RayStartError, match=reason) as failed:
        sweep.run()
    assert lives(tmp_path) == 1 and said.getvalue() == "" and not states(sweep)
    assert "\n" not in str(failed.value) and "resume" not in str(failed.value)


def test_a_start_that_fails_after_ray_was_lost_ends_the_run(
    tmp_path: Path, made: Callable[..., Made]
) -> None:
    sweep, _ = made("abort unable work", why="OSError: no port is free")
    assert sweep.run() == "OSError: no port is free" and lives(tmp_path) == 2


def test_silence_is_death(
    tmp_path: Path, made: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "SILENT_SECONDS", 0.2)
    sweep, _ = made("silent silent")
    assert sweep.run() == "Ray does not answer" and lives(tmp_path) == 2


def test_a_pause_of_driver_and_ray_is_no_silence(
    tmp_path: Path, made: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(step=1000.0)  # each look is a quarter of an hour after the last
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    sweep, _ = made("work")
    assert sweep.run() == "" and lives(tmp_path) == 1


def test_a_full_disk_is_said_in_one_line_and_tried_no_further(
    tmp_path: Path, made: Callable[..., Made]
) -> None:
    sweep, _ = made("full work")
    with pytest.raises(LedgerError, match=r"no space is left on its disk.*Free some space"):
        sweep.run()
    assert lives(tmp_path) == 1


def test_retries_of_a_trial_that_the_machine_ends(
    tmp_path: Path, made: Callable[..., Made]
) -> None:
    sweep, said = made("broken", why="its worker died")
    assert sweep.run() == ""
    tries = f"the machine: its worker died (given up after {RETRIES + 1} attempts)"
    assert set(sweep.job_queue.lost.values()) == {tries} and lives(tmp_path) == 1
    assert said.getvalue().startswith(tries)


@pytest.mark.parametrize("word", ["deaf", "late"])
def test_who_does_not_stop_is_ended(
    tmp_path: Path, made: Callable[..., Made], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(supervisor, "STOP_SECONDS", 0.2)
    sweep, _ = made(f"{word} work")
    threading.Timer(1.0, sweep.job_queue.stop).start()
    assert sweep.run() == "" and lives(tmp_path) == 1
