"""Racing: repeats over seeds end early for cells that are clearly worse than the best.

All cells get the first seeds. Then, seed by seed, a cell is dropped if the whole interval of its
paired difference to the leader lies below zero, and the others go on. What is dropped is a
function of the results alone, so a stopped sweep goes on with the same race. Idea: Maron & Moore,
"Hoeffding races", NIPS 1993; F-race, Birattari et al., GECCO 2002; here with the paired-t interval
that the tables show. Cells are compared again and again, so that `level` is no error rate of the
race: a race saves time, and its tables state how many seeds each cell had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from reports.stats import paired_difference
from trainables.strict import Strict

if TYPE_CHECKING:
    from ablate.cell import Cell
    from ablate.progression import Progression, StudyState


class Race(Strict):
    """after: seeds that every cell gets. level: of the two-sided interval that decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: int = Field(3, ge=2)
    level: float = Field(0.95, gt=0.5, lt=1)


@dataclass(frozen=True)
class Standing:
    """How a race stands. seeds: how many of the seeds its cells have by now, or are to get.
    dropped: cell → seeds that it got."""

    alive: tuple[int, ...]
    seeds: int
    dropped: dict[int, int] = field(default_factory=dict)


def standing(
    race: Race, seeds: Sequence[int], values: Mapping[int, Mapping[int, float | None]]
) -> Standing:
    """The race as far as results are known.

    Args:
        values: cell → {seed: value}; None: it failed; without a seed: not known yet. A cell that
            failed at a seed gets no more of them.
    """
    alive, dropped = list(values), dict[int, int]()
    count = min(race.after, len(seeds))
    while True:
        drawn = seeds[:count]
        if not alive or any(seed not in values[cell] for cell in alive for seed in drawn):
            return Standing(tuple(alive), count, dropped)
        whole = {
            cell: {seed: value for seed in drawn if (value := values[cell][seed]) is not None}
            for cell in alive
        }
        kept = [cell for cell in alive if len(whole[cell]) == count]
        if kept:
            leader = max(kept, key=lambda cell: math.fsum(whole[cell].values()))
            kept = [cell for cell in kept if not _worse(whole[cell], whole[leader], race.level)]
        if count < len(seeds):
            dropped |= {cell: count for cell in alive if cell not in kept}
            alive = kept
        if count >= len(seeds) or not alive:
            return Standing(tuple(alive), count, dropped)
        count += 1


def _worse(cell: Mapping[int, float], leader: Mapping[int, float], level: float) -> bool:
    found = paired_difference(cell, leader, level=level)
    return found is not None and found.high is not None and found.high < 0


class Racing:
    """The race of one study: which cells it lists, seed by seed."""

    def __init__(self, progression: Progression, name: str, race: Race) -> None:
        self._progression, self.name, self.race = progression, name, race
        self._every: dict[int, dict[int, Cell]] = {}  # idx → seed → cell
        self._listed: set[tuple[int, int]] = set()
        self.dropped: dict[int, int] = {}

    def fresh(self, state: StudyState) -> list[Cell]:
        """Cells that the race has come to since the last call; sets the study's size."""
        plan = self._progression.plan
        if not self._every:
            points = plan.spec.studies[self.name].listed
            taken = [self._progression.taken(self.name, point.arm) for point in points]
            if any(values is None for values in taken) and not state.short:
                return []
            for idx, (point, values) in enumerate(zip(points, taken, strict=True)):
                if values is None:
                    continue
                told = self._progression.told(self.name, point)
                cells = plan.cells(self.name, told, idx, values)
                self._every[idx] = {cell.seed: cell for cell in cells}
                state.listed.add(idx)
        seeds = plan.seeds(self.name)
        now = standing(self.race, seeds, {idx: self._values(idx) for idx in self._every})
        self.dropped = now.dropped
        whole = len(plan.spec.studies[self.name].listed) - len(now.dropped)
        state.size = sum(now.dropped.values()) + len(seeds) * whole
        found = [
            self._every[idx][seed]
            for idx in now.alive
            for seed in seeds[: now.seeds]
            if (idx, seed) not in self._listed
        ]
        self._listed |= {(cell.idx, cell.seed) for cell in found}
        return found

    def _values(self, idx: int) -> dict[int, float | None]:
        progression = self._progression
        return {
            seed: progression.mean([cell])
            for seed, cell in self._every[idx].items()
            if (idx, seed) in self._listed and progression.settled(cell)
        }
