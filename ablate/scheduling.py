"""Schedulers: which cells of a study go on training, as pure functions of what is known.

A scheduled cell runs in legs. Each leg ends at a rung, an epoch at which the cell is paused with
its state saved and its best value so far is a fact of the ledger; a decision says whether it goes
on to the next rung, waits, or is stopped. Decisions are computed from facts alone, so that a
killed sweep goes on as if nothing had happened. Those of `successive_halving` and `hyperband` do
not depend on the order of results either; `asha` and `median` decide on what is known at
the time, as their purpose is not to wait. Population-based training is left out: it changes a
trial's configuration while it runs, and what has no fixed configuration has no identity here.
Fidelities other than epochs (image size, heads before whole networks) are configurations of
their own: design `promote`.

Sources: successive halving and Hyperband, Li et al., "Hyperband", JMLR 2018, Algorithm 1; ASHA,
Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, Algorithm 2;
median stopping, Golovin et al., "Google Vizier", KDD 2017, Section 3.2.2.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from trainables.strict import Strict


class _Options(Strict):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SuccessiveHalving(_Options):
    """All cells of a bracket run to `grace` epochs, the best 1/`factor` go on to `factor` times
    as many, and so on to the last epoch. A bracket is a round of a search, or a whole grid."""

    name: Literal["successive_halving"] = "successive_halving"
    grace: int = Field(1, ge=1)
    factor: int = Field(3, ge=2)


class Hyperband(_Options):
    """Successive halving whose rounds take turns in how early they begin to stop cells: from
    `grace` epochs on, from factor · grace, …, and at last not at all."""

    name: Literal["hyperband"] = "hyperband"
    grace: int = Field(1, ge=1)
    factor: int = Field(3, ge=2)


class Asha(_Options):
    """Asynchronous successive halving: a cell goes on as soon as it is among the best
    1/`factor` of those that have reached its rung so far."""

    name: Literal["asha"] = "asha"
    grace: int = Field(1, ge=1)
    factor: int = Field(3, ge=2)


class Median(_Options):
    """A cell stops at epoch `grace` + i · `every` if its best value so far is below the median
    of the other cells' mean values up to that epoch; not before `least` others got there."""

    name: Literal["median"] = "median"
    grace: int = Field(1, ge=1)
    every: int = Field(1, ge=1)
    least: int = Field(3, ge=1)


Scheduler = Annotated[SuccessiveHalving | Hyperband | Asha | Median, Field(discriminator="name")]
STOP: Literal["stop"] = "stop"
WAIT: Literal["wait"] = "wait"
Decision = int | Literal["stop", "wait"]  # an epoch to run to, or one of these


@dataclass(frozen=True)
class Entry:
    """What is known of a cell.

    values: the objective at each whole epoch that all of its seeds have reported, meaned over
        the seeds. epochs: that it trains in full.
    failed: it never will have a value. running: a leg of it is under way.
    stopped: an earlier decision, which is a fact by now, has ended it.
    bracket: number of its round.
    """

    values: tuple[float, ...]
    epochs: int
    failed: bool = False
    running: bool = False
    stopped: bool = False
    bracket: int = 0

    @property
    def reached(self) -> int:
        return len(self.values)

    def best(self, rung: int) -> float:
        """Best value up to epoch `rung`."""
        return max(self.values[:rung])

    def mean(self, rung: int) -> float:
        return math.fsum(self.values[:rung]) / rung


def rungs(first: int, factor: int, epochs: int) -> list[int]:
    """first · factor^k below `epochs`, and `epochs`."""
    found = []
    while first < epochs:
        found.append(first)
        first *= factor
    return [*found, epochs]


def kept(count: int, factor: int) -> int:
    """How many of `count` go on: ⌊count / factor⌋, at least one."""
    return max(1, count // factor)


def ranked(entries: Sequence[Entry], places: Sequence[int], rung: int) -> list[int]:
    """Places by value at a rung, best first; earlier cells first on ties."""
    return sorted(places, key=lambda place: (-entries[place].best(rung), place))


def decide(scheduler: Scheduler, entries: Sequence[Entry], *, closed: bool) -> list[Decision]:
    """A decision for each cell of a study that is known so far, by its place.

    "stop" also stands for a cell that has nothing left to do. No cell is ever told to go on by
    one call and, facts unchanged, to stop by another; but "wait" may turn into either.

    Args:
        closed: no cell will be added any more (bears on the asynchronous ones, whose last cells
            would otherwise wait for peers that never come).
    """
    if isinstance(scheduler, SuccessiveHalving | Hyperband):
        found: list[Decision] = [STOP] * len(entries)
        for bracket in sorted({entry.bracket for entry in entries}):
            places = [i for i, entry in enumerate(entries) if entry.bracket == bracket]
            for place, decision in zip(
                places, _halving(scheduler, [entries[i] for i in places], bracket), strict=True
            ):
                found[place] = decision
        return found
    if isinstance(scheduler, Asha):
        return _asha(scheduler, entries, closed=closed)
    return _median(scheduler, entries)


def _halving(
    scheduler: SuccessiveHalving | Hyperband, entries: Sequence[Entry], bracket: int
) -> list[Decision]:
    """One bracket; cells need not train equally long: each has the rungs of its own length."""
    found: list[Decision] = [STOP] * len(entries)
    epochs = max(entry.epochs for entry in entries)
    steps = rungs(scheduler.grace, scheduler.factor, epochs)
    if isinstance(scheduler, Hyperband):
        steps = steps[bracket % len(steps) :]
    alive = [i for i, entry in enumerate(entries) if not entry.failed]
    for rung in steps:
        short = [i for i in alive if entries[i].reached < min(rung, entries[i].epochs)]
        for place in alive:
            found[place] = WAIT
        if short:
            for place in short:
                found[place] = min(rung, entries[place].epochs)
            return found
        for place in alive:
            found[place] = STOP
        if rung >= epochs:
            return found
        alive = ranked(entries, alive, rung)[: kept(len(alive), scheduler.factor)]
    return found


def _asha(scheduler: Asha, entries: Sequence[Entry], *, closed: bool) -> list[Decision]:
    found: list[Decision] = [WAIT] * len(entries)
    epochs = max((entry.epochs for entry in entries), default=1)
    steps = rungs(scheduler.grace, scheduler.factor, epochs)
    alive = [i for i, entry in enumerate(entries) if not entry.failed]
    idle = True
    for place in alive:
        goal = min(steps[0], entries[place].epochs)
        if entries[place].reached < goal:
            found[place], idle = goal, False
    for rung, following in itertools.pairwise(steps):
        there = [i for i in alive if entries[i].reached >= min(rung, entries[i].epochs)]
        best = ranked(entries, there, rung)[: len(there) // scheduler.factor]
        # Promoted once is promoted for good: whoever has passed the rung, or is on its way.
        passed = [i for i in there if entries[i].reached > rung or entries[i].running]
        for place in dict.fromkeys([*best, *passed]):
            goal = min(following, entries[place].epochs)
            if entries[place].reached < goal:
                found[place], idle = goal, False
    for place, entry in enumerate(entries):
        if entry.failed or entry.reached >= entry.epochs:
            found[place] = STOP
    if closed and idle and alive:
        # Too few to fill the upper rungs: the best of those that got farthest goes to the end.
        farthest = max(entries[i].reached for i in alive)
        if not any(entries[i].reached >= entries[i].epochs for i in alive):
            top = [i for i in alive if entries[i].reached == farthest]
            first = ranked(entries, top, farthest)[0]
            found[first] = entries[first].epochs
            return found
        return [STOP] * len(entries)
    return found


def _median(scheduler: Median, entries: Sequence[Entry]) -> list[Decision]:
    found: list[Decision] = []
    for place, entry in enumerate(entries):
        ended = entry.failed or entry.stopped
        found.append(STOP if ended else _beside_median(scheduler, entries, place))
    return found


def _beside_median(scheduler: Median, entries: Sequence[Entry], place: int) -> Decision:
    """The next look at a cell, or "stop" where an earlier look has ended it.

    What the others' median is changes with time: a stop must be kept as a fact (`stopped`).
    """
    entry = entries[place]
    if entry.reached >= entry.epochs:
        return STOP
    looks = range(scheduler.grace, entry.epochs, scheduler.every)
    following = next((look for look in looks if look > entry.reached), entry.epochs)
    if entry.running or entry.reached not in looks:
        return following
    others = [
        other.mean(entry.reached)
        for i, other in enumerate(entries)
        if i != place and not other.failed and other.reached >= entry.reached
    ]
    if len(others) < scheduler.least:
        return following
    return STOP if entry.best(entry.reached) < statistics.median(others) else following
