"""Which trials go first: the order of a plan alone decides it, never how long something took.

Where slots are fewer than trials, a study that others wait for goes before one that none waits
for: else its last rounds stand behind grids that could have filled the slots later, and what
follows it is left for the end, one after the other. Of equals, trials whose backbone trains go
first: the long ones at the end would leave slots idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ablate.plan.cell import Cell
from ablate.plan.plan import Plan
from ablate.sweep.jobs.queue import LAST, Rank
from ablate.values.paths import has, lookup
from trainables.config.network import BackboneConfig

MODE = "backbone.mode"


class Order:
    """Ranks the trials of a plan.

    Attributes:
        long: the studies whose first trial trains a backbone, as far as a plan knows it.
    """

    def __init__(self, plan: Plan) -> None:
        studies = {name: plan.spec.studies[name] for name in plan.order}
        self._behind = behind({name: study.centres() for name, study in studies.items()})
        self.long = set()
        for name, study in studies.items():
            point = study.listed[0] if study.fixed else None
            if _trains(plan.layers(name, point, plan.example(name)).merged):
                self.long.add(name)

    def rank(self, cells: Iterable[Cell]) -> Rank:
        """Of a trial, by the cells that it stands in; the highest goes first."""
        return max((self._rank(cell) for cell in cells), default=LAST)

    def of(self, study: str) -> Rank:
        """Of a trial that a search is to propose."""
        return self._behind[study], int(study in self.long)

    def _rank(self, cell: Cell) -> Rank:
        return self._behind.get(cell.study, 0), int(_trains(cell.config))


def _trains(config: Mapping[str, Any]) -> bool:
    """Whether a trial trains its backbone."""
    mode = lookup(config, MODE) if has(config, MODE) else BackboneConfig().mode
    return bool(mode == "finetune")


def behind(centres: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Of each study how many others follow it one after another, each centred on the one before:
    the longest such chain.

    centres: the studies that each is centred on, which come before it.
    """
    depth = dict.fromkeys(centres, 0)
    for name in reversed(depth):
        for centre in centres[name]:
            depth[centre] = max(depth[centre], depth[name] + 1)
    return depth
