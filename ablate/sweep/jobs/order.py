"""Which trials go first: the order of a plan alone decides it, never how long something took.

Where slots are fewer than trials, a study that others wait for goes before one that none waits
for: else its last rounds stand behind grids that could have filled the slots later, and what
follows it is left for the end, one after the other. Of equals, trials whose backbone trains go
first: the long ones at the end would leave slots idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ablate.plan.cell import Cell
from ablate.plan.plan import Plan
from ablate.sweep.jobs.queue import LAST, Rank


class Order:
    """Ranks the trials of a plan."""

    def __init__(self, plan: Plan) -> None:
        centres = {name: plan.spec.studies[name].centres() for name in plan.order}
        self._behind = behind(centres)

    def rank(self, cells: Iterable[Cell]) -> Rank:
        """Of a trial, by the cells that it stands in; the highest goes first."""
        return max((self._rank(cell) for cell in cells), default=LAST)

    def _rank(self, cell: Cell) -> Rank:
        backbone: Mapping[str, object] = cell.config.get("backbone", {})
        return self._behind.get(cell.study, 0), int(backbone.get("mode") == "finetune")


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
