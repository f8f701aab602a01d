"""A pack's folders: who ends leaves at once; the machine's fault is of those who are left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from trainables.core.runtime import Runtime
from trainables.jobs.nodes.carried import Carried
from trainables.jobs.nodes.envelope import Envelope, Leader
from trainables.jobs.nodes.packed import PackedAttempt
from trainables.jobs.request import Job

EPOCH: dict[str, Any] = {"event": "epoch"}
FINAL: dict[str, Any] = {"event": "final"}


def breaks(jobs: Sequence[Job]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The first ends, then the machine ends all."""
    for place in range(len(jobs)):
        yield place, EPOCH
    yield 0, FINAL
    raise OSError(5, "the disk had a bad moment")


def stops(jobs: Sequence[Job]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The first fails, and of the others nothing is told."""
    yield 0, {"event": "failed", "reason": "TrialFailure: not finite", "traceback": ""}


def members(folder: Path) -> list[Carried]:
    jobs = [Job(f"t{n}", {}, n, Runtime("cpu", 1, folder, folder / f"t{n}")) for n in range(3)]
    envelope = Envelope(jobs[0], "", True, Leader("host", 1, 0.0), beside=tuple(jobs[1:]))
    again = Envelope.parse(envelope.text())
    assert again == envelope
    return [Carried(each, apart=False) for each in again.each()]


def free(folder: Path) -> bool:
    try:
        with FileLock(folder / ".lock", timeout=0):
            return True
    except Timeout:
        return False


def test_who_ends_is_told_of_first_and_its_folder_is_free(tmp_path: Path) -> None:
    attempt = PackedAttempt(members(tmp_path), f"{__name__}:breaks", clean=True)
    attempt.begin()
    (tmp_path / "t0" / "checkpoints").mkdir()
    told = dict(attempt.events(60.0))
    assert told == {"t0": [EPOCH, FINAL], "t1": [EPOCH], "t2": [EPOCH]}
    assert not (tmp_path / "t0" / "checkpoints").exists()
    assert [free(tmp_path / f"t{n}") for n in range(3)] == [True, False, False]
    assert not attempt.over
    with pytest.raises(OSError, match="bad moment"):
        attempt.events(60.0)
    attempt.close()
    assert [free(tmp_path / f"t{n}") for n in range(3)] == [True] * 3
    logs = [(tmp_path / f"t{n}" / "trial.log").read_text() for n in range(3)]
    assert ["interrupted by the machine" in log for log in logs] == [False, True, True]
    assert all(
        f"t{n} begins (train)" in log and log.count("begins") == 1 for n, log in enumerate(logs)
    )


def test_who_is_never_told_of_has_failed(tmp_path: Path) -> None:
    attempt = PackedAttempt(members(tmp_path), f"{__name__}:stops", clean=True)
    attempt.begin()
    told = {trial: events[-1]["reason"] for trial, events in attempt.events(60.0)}
    assert told.pop("t0") == "TrialFailure: not finite"
    assert set(told.values()) == {"TrialFailure: the runner ended without a final event"}
    assert attempt.over and len(told) == 2


def test_a_folder_that_is_taken_leaves_the_others_free(tmp_path: Path) -> None:
    given = members(tmp_path)
    (tmp_path / "t1").mkdir()
    with FileLock(tmp_path / "t1" / ".lock"), pytest.raises(TimeoutError, match="t1: found"):
        PackedAttempt(given, f"{__name__}:breaks", clean=True, lock_seconds=0.2)
    assert free(tmp_path / "t0")
