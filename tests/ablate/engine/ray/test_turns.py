"""Whose turn it is among the sweeps of a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from ray.exceptions import RpcError

from ablate.engine.ray import turns
from ablate.engine.ray.turns import DEAD_SECONDS, GONE_SECONDS, TELL_SECONDS, Turns


class Shared:
    """A table as Ray keeps one, and the time that passes."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.now = 1000.0
        self.away = 0  # times

    def put(self, word: str, text: str) -> None:
        self.lines[word] = text

    def get(self, word: str) -> str | None:
        return self.lines.get(word)

    def delete(self, word: str) -> None:
        self.lines.pop(word, None)

    def words(self) -> list[str]:
        if self.away:
            self.away -= 1
            raise RpcError("the head is away")
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


def looked(driver: Turns, *, waits: bool) -> bool:
    """Whether it yields after a look."""
    driver.waits = waits
    driver.look()
    return driver.yields


@pytest.mark.parametrize(
    ("other", "waits", "yields"),
    [(1, True, True), (1, False, False), (0, True, False), (-1, True, False)],
)
def test_who_comes_first(
    driver: Callable[[int], Turns], other: int, waits: bool, yields: bool
) -> None:
    ours, theirs = driver(0), driver(other)
    looked(theirs, waits=waits)
    assert looked(ours, waits=True) is yields
    assert looked(theirs, waits=waits) is False or other < 0


def test_it_is_said_once_and_again_when_it_is_over(
    table: Shared, driver: Callable[[int], Turns]
) -> None:
    said.clear()
    ours, theirs = driver(0), driver(5)
    for waits in (True, True, True, False, False):
        table.now += TELL_SECONDS
        looked(theirs, waits=waits)
        looked(ours, waits=True)
    assert said == [True, False]


def test_the_dead_are_not_waited_for_and_their_lines_go(
    table: Shared, driver: Callable[[int], Turns]
) -> None:
    ours, theirs = driver(0), driver(5)
    looked(theirs, waits=True)
    assert looked(ours, waits=True)
    table.now += DEAD_SECONDS + TELL_SECONDS
    assert not looked(ours, waits=True)
    looked(theirs, waits=True)  # it was only slow
    table.now += TELL_SECONDS
    assert looked(ours, waits=True)
    table.now += GONE_SECONDS + TELL_SECONDS
    assert not looked(ours, waits=True)
    assert [json.loads(line)["priority"] for line in table.lines.values()] == [0]


def test_one_that_yields_comes_before_lower_ones_all_the_same(
    driver: Callable[[int], Turns],
) -> None:
    low, middle, high = driver(0), driver(1), driver(2)
    looked(high, waits=True)
    looked(middle, waits=False)  # it joined just now, and has asked for nothing
    looked(middle, waits=False)
    looked(high, waits=False)
    assert looked(low, waits=True)
    assert not looked(middle, waits=False) and middle.waits is False
    looked(middle, waits=False)
    assert not looked(low, waits=True)


def test_who_ends_takes_its_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TELL_SECONDS", 0.01)
    table = Shared()
    with Turns(5, said.append, table) as theirs:
        theirs.waits = True
        with Turns(0, said.append, table) as ours:
            end = time.monotonic() + 30
            while not ours.yields:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert len(table.lines) == 2
        assert len(table.lines) == 1
    assert not table.lines


def test_a_head_that_is_away_makes_nobody_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread goes on, and counts from when the head is back."""
    monkeypatch.setattr(turns, "TELL_SECONDS", 0.01)
    table = Shared()
    theirs = Turns(5, said.append, table)
    looked(theirs, waits=True)
    with Turns(0, said.append, table) as ours:
        assert ours.yields
        table.away = 5
        (word,) = ours._known
        ours._known[word] = (ours._known[word][0], time.monotonic() - DEAD_SECONDS + 0.5)
        end = time.monotonic() + 30
        while table.away:
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(1.0)
        assert ours.yields
