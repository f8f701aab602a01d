"""A scheduler at work on one study: between the facts and its decisions.

A cell is scheduled as one: all of its seeds run to the same rung, and its value is their mean.
Decisions are recomputed when a fact of the study has changed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ablate.scheduler_base import STOP, WAIT, Decision, Entry, SchedulerBase

if TYPE_CHECKING:
    from ablate.cell import Cell
    from ablate.progression import Progression


class Schedule:
    """The decisions for the cells of one study.

    Args:
        progression: knows the study's cells and the facts.
        name: the study.
    """

    def __init__(self, progression: Progression, name: str) -> None:
        self._progression, self.name = progression, name
        study = progression.plan.spec.studies[name]
        scheduler = study.halting()
        assert scheduler is not None
        self.scheduler: SchedulerBase = scheduler
        self._bracket = study.bracket() or progression.plan.size(name)
        self._decisions: dict[int, Decision] = {}
        self._version: object = None
        self._stops: dict[str, int] | None = None

    def decision(self, cell: Cell) -> Decision:
        """An epoch to run to, "wait" or "stop"; "wait" also for a seed that is there already,
        while another of its cell is not."""
        decision = self._decide()[cell.idx]
        if isinstance(decision, int) and decision < cell.config["training"]["epochs"]:
            reached = len(self._progression.facts.values(cell.trial_id, self._objective))
            return WAIT if reached >= decision else decision
        return decision

    def paused(self, cell: Cell) -> bool:
        """Whether a cell has come to a rung and no leg of it is under way."""
        values = self._progression.facts.values(cell.trial_id, self._objective)
        return bool(values) and cell.trial_id not in self._progression.running

    def reports(self, idx: int) -> dict[int, float]:
        """Best value so far by epoch, for those who learn from cells that were stopped."""
        entry = self._entry([c for c in self._state.cells if c.idx == idx])
        return {epoch: entry.best(epoch) for epoch in range(1, entry.reached + 1)}

    # ------------------------------------------------------------------ within

    @property
    def _objective(self) -> str:
        return self._progression.plan.spec.objective

    @property
    def _state(self) -> Any:
        return self._progression.studies[self.name]

    def _by_idx(self) -> dict[int, list[Cell]]:
        found: dict[int, list[Cell]] = {}
        for cell in self._state.cells:
            found.setdefault(cell.idx, []).append(cell)
        return dict(sorted(found.items()))

    def _decide(self) -> dict[int, Decision]:
        progression, count = self._progression, len(self._state.cells)
        version = (progression.facts.version, count)
        if version != self._version:
            cells = self._by_idx()
            entries = [self._entry(group) for group in cells.values()]
            decisions = self.scheduler.decide(entries, closed=count == self._state.size)
            self._decisions = dict(zip(cells, decisions, strict=True))
            self._version = version
            if self.scheduler.keeps_stops:
                self._keep_stops(cells, entries)
        return self._decisions

    def _entry(self, cells: list[Cell]) -> Entry:
        facts, running = self._progression.facts, self._progression.running
        first = cells[0]
        failed = any(c.error or facts[c.trial_id].status == "failed" for c in cells)
        epochs = 1 if first.error else int(first.config["training"]["epochs"])
        whole = [facts.values(cell.trial_id, self._objective) for cell in cells]
        values = [math.fsum(at) / len(at) for at in zip(*whole, strict=False)]
        if not all(facts[cell.trial_id].status == "done" for cell in cells):
            # The last epoch counts once the trial is finished: evaluated and exported.
            values = values[: epochs - 1]
        return Entry(
            values=tuple(values),
            epochs=epochs,
            failed=failed,
            running=any(cell.trial_id in running for cell in cells),
            stopped=first.cell in self._stopped(),
            bracket=first.idx // self._bracket,
        )

    def _stopped(self) -> dict[str, int]:
        if self._stops is None:
            sweep = self._progression.plan.sweep_id
            self._stops = self._progression.facts.ledger.stops(sweep, self.name)
        return self._stops

    def _keep_stops(self, cells: dict[int, list[Cell]], entries: list[Entry]) -> None:
        """What others reach later must not bring back what was stopped."""
        sweep, stops = self._progression.plan.sweep_id, self._stopped()
        for group, entry in zip(cells.values(), entries, strict=True):
            first = group[0]
            over = entry.failed or entry.reached >= entry.epochs or first.cell in stops
            if self._decisions[first.idx] == STOP and not over:
                stops[first.cell] = entry.reached
                if self._progression.record:
                    self._progression.facts.ledger.put_stop(
                        sweep, self.name, first.cell, entry.reached
                    )
