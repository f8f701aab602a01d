"""What all schedulers share: what they are told of a study's cells, and what they answer.

A scheduler is one file: a class of `SchedulerBase` with a `name` of its own, registered in
`SCHEDULERS`, that decides from facts alone. A file in this package is named in the list below,
another package joins through the entry-point group `ablate.schedulers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from trainables.config.registry import Registry
from trainables.config.strict import Strict

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


class SchedulerBase(Strict):
    """Which cells of a study go on training.

    grace: epochs that every cell gets before anything is stopped.
    asynchronous: it decides on what is known at the time; a search's rounds do not wait for it, and
        a search may be asynchronous too. The others compare within rounds.
    keeps_stops: what others reach later could turn its "stop" into going on, so that a stop has to
        become a fact.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    grace: int = Field(1, ge=1)

    asynchronous: ClassVar[bool] = False
    keeps_stops: ClassVar[bool] = False

    def decide(self, entries: Sequence[Entry], *, closed: bool) -> list[Decision]:
        """A decision for each cell of a study that is known so far, by its place.

        "stop" also stands for a cell that has nothing left to do. No cell is ever told to go on by
        one call and, facts unchanged, to stop by another; but "wait" may turn into either.

        Args:
            closed: no cell will be added any more (bears on the asynchronous ones, whose last
                cells would otherwise wait for peers that never come).
        """
        raise NotImplementedError


def rungs(first: int, factor: int, epochs: int) -> list[int]:
    """first · factor^k below `epochs`, and `epochs`."""
    steps = []
    while first < epochs:
        steps.append(first)
        first *= factor
    return [*steps, epochs]


def survivors(count: int, factor: int) -> int:
    """How many of `count` go on: ⌊count / factor⌋, at least one."""
    return max(1, count // factor)


def ranked(entries: Sequence[Entry], places: Sequence[int], rung: int) -> list[int]:
    """Places by value at a rung, best first; earlier cells first on ties."""
    return sorted(places, key=lambda place: (-entries[place].best(rung), place))


SCHEDULERS: Registry[type[SchedulerBase]] = Registry(
    "schedulers",
    "ablate.schedulers.halving",
    "ablate.schedulers.asha",
    "ablate.schedulers.median",
)
