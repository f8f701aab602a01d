"""What counts as an attempt of a trial, and what is said of nodes whose disks are full."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from ablate.engine.live.machines import Machines
from ablate.engine.ray.attempts import MOVES, SAY_SECONDS, Attempts


class Said:
    """A board that keeps what it is to say."""

    def __init__(self) -> None:
        self.machines = Machines([("a1b2c3d4", "gpu-7", 2)])
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def told(node: str = "a1b2c3d4") -> dict[str, str]:
    return {"trial_id": "t", "node": node, "folder": "/cache"}


def test_a_full_disk_counts_as_no_attempt_but_not_without_end() -> None:
    attempts, board = Attempts(), cast(Any, Said())
    assert attempts.ended("t") == 1
    for _ in range(MOVES):
        attempts.full(told(), board)
        assert attempts.ended("t") == 1
    attempts.full(told(), board)
    assert attempts.ended("t") == 2
    attempts.over("t")
    attempts.over("never heard of")
    attempts.full(told(), board)
    assert attempts.ended("t") == 0


def test_a_node_is_named_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts, now = Attempts(), 5.0
    board: Any = Said()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(3):
        attempts.full(told(), board)
    attempts.full(told("ffffffffffff"), board)
    now += SAY_SECONDS
    attempts.full(told(), board)
    first, other, again = board.lines
    assert first == again
    assert first.startswith("node gpu-7: no space left for /cache; its trials go to other nodes")
    assert other.startswith("node ffffff: no space left")
