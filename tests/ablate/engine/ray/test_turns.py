"""Whose turn it is among the sweeps of a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from ablate.engine.ray.turns import DEAD_SECONDS, GONE_SECONDS, TELL_SECONDS, Turns


class Shared:
    """A table as Ray keeps one, and the time that passes."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.now = 1000.0
        self.asked = 0

    def put(self, word: str, text: str) -> None:
        self.lines[word] = text

    def get(self, word: str) -> str | None:
        return self.lines.get(word)

    def delete(self, word: str) -> None:
        self.lines.pop(word, None)

    def words(self) -> list[str]:
        self.asked += 1
        return list(self.lines)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Shared:
    made = Shared()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


@pytest.fixture
def driver(table: Shared) -> Callable[[int], Turns]:
    return lambda priority: Turns(priority, said.append, table)


said: list[bool] = []


@pytest.mark.parametrize(
    ("other", "waits", "yields"),
    [(1, True, True), (1, False, False), (0, True, False), (-1, True, False)],
)
def test_who_comes_first(
    driver: Callable[[int], Turns], other: int, waits: bool, yields: bool
) -> None:
    ours, theirs = driver(0), driver(other)
    theirs.tick(waits=waits)
    assert ours.tick(waits=True) is yields
    assert theirs.tick(waits=waits) is False or other < 0


def test_it_is_said_once_and_again_when_it_is_over(
    table: Shared, driver: Callable[[int], Turns]
) -> None:
    said.clear()
    ours, theirs = driver(0), driver(5)
    for waits in (True, True, True, False, False):
        table.now += TELL_SECONDS
        theirs.tick(waits=waits)
        ours.tick(waits=True)
    assert said == [True, False]


def test_the_dead_are_not_waited_for_and_their_lines_go(
    table: Shared, driver: Callable[[int], Turns]
) -> None:
    ours, theirs = driver(0), driver(5)
    theirs.tick(waits=True)
    assert ours.tick(waits=True)
    table.now += DEAD_SECONDS + TELL_SECONDS
    assert not ours.tick(waits=True)
    theirs.tick(waits=True)  # it was only slow
    table.now += TELL_SECONDS
    assert ours.tick(waits=True)
    table.now += GONE_SECONDS + TELL_SECONDS
    assert not ours.tick(waits=True)
    assert [json.loads(line)["priority"] for line in table.lines.values()] == [0]


def test_who_ends_takes_its_line_away(table: Shared, driver: Callable[[int], Turns]) -> None:
    ours, theirs = driver(0), driver(5)
    theirs.tick(waits=True)
    theirs.close()
    assert not ours.tick(waits=True) and len(table.lines) == 1


def test_the_table_is_asked_once_a_second(table: Shared, driver: Callable[[int], Turns]) -> None:
    ours = driver(0)
    for _ in range(100):
        ours.tick(waits=False)
        table.now += TELL_SECONDS / 10
    assert table.asked == 10
