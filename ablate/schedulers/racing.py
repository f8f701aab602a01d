"""Racing: give no further seeds to cells that are clearly worse than the best.

All cells get the first seeds. Then, after each seed, a cell is dropped if the whole interval of its
paired difference to the leader is below zero. The race depends only on results, so a resumed sweep
continues it. Intervals are paired t at 1 − (1 − level) / (looks · (cells − 1)), so that the best
cell is dropped with a probability of at most 1 − level over all looks. A dropped cell's mean is
biased downwards; its row gets no verdict.

References:
    Maron and Moore, "Hoeffding races", NIPS 1993.
    Birattari et al., "A racing algorithm for configuring metaheuristics" (F-race), GECCO 2002.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from trainables.config.registry import Strict


class Race(Strict, extra="forbid", frozen=True):
    """Options of a race over seeds.

    after: number of seeds that every cell gets.
    level: probability with which the best cell survives the race.
    """

    after: int = Field(3, ge=2)
    level: float = Field(0.95, gt=0.5, lt=1)


@dataclass(frozen=True)
class Standing:
    """The state of a race.

    Attributes:
        alive: the cells that go on.
        seeds: number of seeds that they have or get next.
        dropped: dropped cell → number of its seeds.
    """

    alive: tuple[int, ...]
    seeds: int
    dropped: dict[int, int] = field(default_factory=dict)


def evaluate_race(
    race: Race, seeds: Sequence[int], values: Mapping[int, Mapping[int, float | None]]
) -> Standing:
    """Run the race over the results so far; return the cells that go on and those dropped.

    From `race.after` seeds on, but not after the last, failed and clearly worse cells are dropped.

    Args:
        race: the options.
        seeds: the study's seeds, in order.
        values: cell → {seed: value}. None stands for a failure; seeds without a result are absent.
    """
    alive, dropped = list(values), dict[int, int]()
    count = min(race.after, len(seeds))
    looks = max(1, len(seeds) - count)  # comparisons of each cell: none after the last seed
    level = 1 - (1 - race.level) / (looks * max(1, len(values) - 1))  # Bonferroni's correction
    while True:
        first_seeds = seeds[:count]
        if not alive or any(seed not in values[cell] for cell in alive for seed in first_seeds):
            return Standing(tuple(alive), count, dropped)  # a result is still missing
        complete = {
            cell: {seed: value for seed in first_seeds if (value := values[cell][seed]) is not None}
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
    """Return whether the whole interval of a cell's difference to the leader is below zero."""
    from reports.stats.paired import paired_difference  # imports SciPy's statistics

    difference = paired_difference(cell, leader, level=level)
    return difference is not None and difference.high is not None and difference.high < 0
