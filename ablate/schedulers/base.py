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

from trainables.config.registry import Registry, Strict

STOP: Literal["stop"] = "stop"
WAIT: Literal["wait"] = "wait"
Decision = int | Literal["stop", "wait"]  # an epoch to run to, or one of these


@dataclass(frozen=True)
class LearningCurve:
    """What is known of a cell."""

    values: tuple[float, ...]  # the objective at each whole epoch of all its seeds, their mean
    epochs: int  # that it trains in full
    failed: bool = False  # it never will have a value
    running: bool = False  # a leg of it is under way
    stopped: bool = False  # an earlier decision, which is a fact by now, has ended it
    bracket: int = 0  # number of its round

    @property
    def epochs_trained(self) -> int:
        return len(self.values)

    def find_best_until(self, rung: int) -> float:
        """Return the best value up to epoch `rung`."""
        return max(self.values[:rung])

    def mean_at(self, rung: int) -> float:
        return math.fsum(self.values[:rung]) / rung


class SchedulerBase(Strict):
    """Which cells of a study go on training.

    grace: epochs that every cell gets before anything is stopped.
    asynchronous: it decides on what is known at the time; a search's rounds do not wait for it, and
        a search may be asynchronous too. The others compare within rounds.
    keeps_stops: what others reach later could revoke its "stop", so that a stop becomes a fact.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    grace: int = Field(1, ge=1)

    asynchronous: ClassVar[bool] = False
    keeps_stops: ClassVar[bool] = False

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        """Return a decision for each cell of a study that is known so far, by its place.

        "stop" also stands for a cell that has nothing left to do. With the facts unchanged a
        decision may change from "wait" alone.

        Args:
            closed: no cell will be added any more, so that none waits for peers to come.
        """
        raise NotImplementedError


def list_rungs(first: int, factor: int, epochs: int) -> list[int]:
    """Return first · factor^k below `epochs`, and `epochs`."""
    steps = []
    while first < epochs:
        steps.append(first)
        first *= factor
    return [*steps, epochs]


def rank_places(entries: Sequence[LearningCurve], places: Sequence[int], rung: int) -> list[int]:
    """Return places by value at a rung, best first; earlier cells first on ties."""
    return sorted(places, key=lambda index: (-entries[index].find_best_until(rung), index))


SCHEDULERS: Registry[type[SchedulerBase]] = Registry(
    "schedulers",
    "ablate.schedulers.halving",
    "ablate.schedulers.asha",
    "ablate.schedulers.median",
)
