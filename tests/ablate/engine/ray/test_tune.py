"""What passes between Ray Tune and the driver."""

from __future__ import annotations

import json
import os
from typing import Any

import psutil
import pytest
from ray.exceptions import ActorDiedError
from ray.experimental import internal_kv

from ablate.engine.ray.tune import cause, take_back_of_the_dead
from trainables.jobs.nodes.envelope import Leader
from trainables.machine.processes import host_name

TRACE = "ray::train()\n  File x.py, line 3\nOSError: [Errno 5] the disk had a bad moment\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError(TRACE), "OSError: [Errno 5] the disk had a bad moment"),
        (ActorDiedError(), "its process is gone: The actor died unexpectedly before finishing"),
        (RuntimeError(""), "its process ended"),
        (None, "its process ended"),
    ],
)
def test_the_cause_is_told_first_and_in_one_line(error: Exception | None, told: str) -> None:
    found = cause(error)
    assert found.startswith(told) and "\n" not in found


def test_envelopes_of_killed_drivers_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    start = psutil.Process().create_time()
    leaders = {
        "alive": Leader(host_name(), os.getpid(), start),
        "killed": Leader(host_name(), os.getpid(), start - 1000),  # its id is another's now
        "elsewhere": Leader("another-host", 2**22 + 1, start),
    }
    table = {
        f"{name}.here/t".encode(): json.dumps({"driver": leader.to_dict()}).encode()
        for name, leader in leaders.items()
    }

    def taken(word: str, namespace: bytes) -> None:
        del table[word.encode()]

    def listed(prefix: str, namespace: bytes) -> list[Any]:
        return list(table)

    monkeypatch.setattr(internal_kv, "_internal_kv_list", listed)
    monkeypatch.setattr(internal_kv, "_internal_kv_get", lambda word, namespace: table[word])
    monkeypatch.setattr(internal_kv, "_internal_kv_del", taken)
    take_back_of_the_dead()
    assert sorted(table) == [b"alive.here/t", b"elsewhere.here/t"]
