"""The interface of schedulers: learning curves of a study's cells in, a decision for each out.

A scheduler is a subclass of `SchedulerBase` with its own `name`, registered in `SCHEDULERS`. Files
of this package are listed below; other packages use the entry-point group `ablate.schedulers`.

A scheduled cell trains to a rung, an epoch at which it is paused, its state saved and its values
recorded. A decision lets it train to the next rung, wait, or stop. Population-based training is not
supported: it changes a trial's configuration during training, and identities need a fixed one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from trainables.config.registry import Strict
from trainables.words.registry import Registry

STOP: Literal["stop"] = "stop"
WAIT: Literal["wait"] = "wait"
Decision = int | Literal["stop", "wait"]  # an int is the epoch to train to


@dataclass(frozen=True)
class LearningCurve:
    """The progress of one cell.

    Attributes:
        values: mean of the objective over seeds, for each epoch that all seeds have finished.
        epochs: number of epochs of full training.
        failed: whether the cell failed and will never have a value.
        running: whether the cell trains now.
        stopped: whether a recorded decision has stopped the cell.
        bracket: number of its round.
    """

    values: tuple[float, ...]
    epochs: int
    failed: bool = False
    running: bool = False
    stopped: bool = False
    bracket: int = 0

    @property
    def epochs_trained(self) -> int:
        return len(self.values)

    def find_best_until(self, rung: int) -> float:
        """Return the best value up to epoch `rung`."""
        return max(self.values[:rung])


class SchedulerBase(Strict, extra="forbid", frozen=True):
    """Decide which cells of a study go on training.

    grace: number of epochs that every cell trains before any is stopped.
    asynchronous: whether it decides on the results known so far, so that rounds of a search do not
        wait for it and a search may be asynchronous. Others compare within rounds.
    keeps_stops: whether a "stop" is recorded, because later results could revoke it.
    """

    name: str
    grace: int = Field(1, ge=1)

    asynchronous: ClassVar[bool] = False
    keeps_stops: ClassVar[bool] = False

    def decide(self, entries: Sequence[LearningCurve], *, closed: bool) -> list[Decision]:
        """Return a decision for each known cell of a study, in the order of `entries`.

        "stop" is also the decision on a finished cell. As long as the results are unchanged,
        every decision but "wait" stays the same.

        Args:
            entries: the cells' learning curves.
            closed: whether no cell will be added, so that no cell waits for others to come.
        """
        raise NotImplementedError


def list_rungs(first: int, factor: int, epochs: int) -> list[int]:
    """Return the epochs (rungs) first · factor^k that are below `epochs`, then `epochs`."""
    rungs = []
    while first < epochs:
        rungs.append(first)
        first *= factor
    return [*rungs, epochs]


def rank_places(entries: Sequence[LearningCurve], places: Sequence[int], rung: int) -> list[int]:
    """Sort indices of cells by the best value up to a rung, best first, then by index."""
    return sorted(places, key=lambda index: (-entries[index].find_best_until(rung), index))


SCHEDULERS: Registry[type[SchedulerBase]] = Registry("schedulers", "ablate.search.early_stopping")
