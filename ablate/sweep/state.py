"""What is known of a sweep as it unfolds: its plan, the ledger's facts, the cells so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from ablate.ledger.facts import Facts
from ablate.plan.cell import Cell
from ablate.plan.plan import Plan


@dataclass
class StudyState:
    """How far one study is.

    awaited: a cell that was not settled when last looked at. complete: nothing of it remains to
        be done. blocked: why it can go no further. short: it has fewer cells than planned, as
        `blocked` says, and is complete with those. dropped: cells that its race has ended → seeds
        that they got.
    """

    name: str
    size: int
    cells: list[Cell] = field(default_factory=list)
    listed: set[int] = field(default_factory=set)
    awaited: Cell | None = None
    complete: bool = False
    blocked: str | None = None
    short: bool = False
    dropped: dict[int, int] = field(default_factory=dict)

    def by_idx(self) -> dict[int, list[Cell]]:
        """Its cells by their place in the study: one list for all seeds and folds of one."""
        groups: dict[int, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.idx, []).append(cell)
        return dict(sorted(groups.items()))


class SweepState:
    """What all parts of a sweep's unfolding read, and write where it is theirs.

    Args:
        record: write proposals and stops to the ledger (the engine), or only compute them (a plan).

    Attributes:
        studies: those asked for, by name. running: trials of this driver that are under way.
    """

    def __init__(self, plan: Plan, facts: Facts, *, record: bool) -> None:
        self.plan, self.facts, self.record = plan, facts, record
        self.studies = {name: StudyState(name, plan.size(name)) for name in plan.order}
        self.running: set[str] = set()
