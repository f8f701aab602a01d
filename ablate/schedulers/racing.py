"""Racing: repeats over seeds end early for cells that are clearly worse than the best.

All cells get the first seeds. Then, seed by seed, a cell is dropped if the whole interval of its
paired difference to the leader lies below zero, and the others go on. What is dropped is a
function of the results alone, so a stopped sweep goes on with the same race. Intervals are paired
t at 1 − (1 − level) / (looks · (cells − 1)), so that the best cell is dropped with a chance of at
most 1 − level, however often the race looks. A dropped cell's mean is biased downwards: its row
gets no verdict.

References:
    Maron and Moore, "Hoeffding races", NIPS 1993; Birattari et al. (F-race), GECCO 2002.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ConfigDict, Field

from trainables.config.registry import Strict


class Race(Strict):
    """after: seeds that every cell gets. level: with which the best cell survives the race."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: int = Field(3, ge=2)
    level: float = Field(0.95, gt=0.5, lt=1)


@dataclass(frozen=True)
class Standing:
    """How a race stands."""

    alive: tuple[int, ...]
    seeds: int  # how many of the seeds its cells have by now, or are to get
    dropped: dict[int, int] = field(default_factory=dict)  # cell → seeds that it got


def evaluate_race(
    race: Race, seeds: Sequence[int], values: Mapping[int, Mapping[int, float | None]]
) -> Standing:
    """Return the race as far as results are known.

    Args:
        values: cell → {seed: value}; None: it failed; without a seed: not known yet. A cell that
            failed at a seed gets no more of them.
    """
    alive, dropped = list(values), dict[int, int]()
    count = min(race.after, len(seeds))
    looks = max(1, len(seeds) - count)  # the last seed drops nobody
    level = 1 - (1 - race.level) / (looks * max(1, len(values) - 1))
    while True:
        drawn = seeds[:count]
        if not alive or any(seed not in values[cell] for cell in alive for seed in drawn):
            return Standing(tuple(alive), count, dropped)
        complete = {
            cell: {seed: value for seed in drawn if (value := values[cell][seed]) is not None}
            for cell in alive
        }
        survivors = [cell for cell in alive if len(complete[cell]) == count]
        if survivors:
            leader = max(survivors, key=lambda cell: math.fsum(complete[cell].values()))
            survivors = [
                cell for cell in survivors if not _is_worse(complete[cell], complete[leader], level)
            ]
        if count < len(seeds):
            dropped |= {cell: count for cell in alive if cell not in survivors}
            alive = survivors
        if count >= len(seeds) or not alive:
            return Standing(tuple(alive), count, dropped)
        count += 1


def _is_worse(cell: Mapping[int, float], leader: Mapping[int, float], level: float) -> bool:
    from reports.stats.paired import paired_difference  # with it all of SciPy's statistics

    behind = paired_difference(cell, leader, level=level)
    return behind is not None and behind.high is not None and behind.high < 0
