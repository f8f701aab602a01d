"""A scheduler at work on one study: between the facts and its decisions.

A cell is scheduled as one: all of its seeds run to the same rung, and its value is their mean.
Decisions are recomputed when a fact of the study has changed.
"""

from __future__ import annotations

import math

from ablate.plan.cell import Cell
from ablate.schedulers.base import STOP, WAIT, Decision, Entry, SchedulerBase
from ablate.sweep.state import SweepState


class Legs:
    """How far each cell of one study is to train, leg by leg.

    Args:
        name: the study. scheduler: its own.
    """

    def __init__(self, state: SweepState, name: str, scheduler: SchedulerBase) -> None:
        self._sweep, self.name, self.scheduler = state, name, scheduler
        self._state = state.studies[name]
        self._objective = state.plan.spec.objective
        self._bracket = state.plan.spec.studies[name].bracket() or state.plan.size(name)
        self._decisions: dict[int, Decision] = {}
        self._version: object = None
        self._stops: dict[str, int] | None = None

    def decision(self, cell: Cell) -> Decision:
        """An epoch to run to, "wait" or "stop"; "wait" also for a seed that is there already,
        while another of its cell is not."""
        decision = self._decide()[cell.idx]
        if isinstance(decision, int) and decision < cell.config["training"]["epochs"]:
            reached = len(self._sweep.facts.values(cell.trial_id, self._objective))
            return WAIT if reached >= decision else decision
        return decision

    def paused(self, cell: Cell) -> bool:
        """Whether a cell has come to a rung and no leg of it is under way."""
        values = self._sweep.facts.values(cell.trial_id, self._objective)
        return bool(values) and cell.trial_id not in self._sweep.running

    def reports(self, idx: int) -> dict[int, float]:
        """Best value so far by epoch, for those who learn from cells that were stopped."""
        entry = self._entry([cell for cell in self._state.cells if cell.idx == idx])
        return {epoch: entry.best(epoch) for epoch in range(1, entry.reached + 1)}

    # ------------------------------------------------------------------ within

    def _decide(self) -> dict[int, Decision]:
        count = len(self._state.cells)
        version = (self._sweep.facts.version, count)
        if version != self._version:
            cells = self._state.by_idx()
            entries = [self._entry(group) for group in cells.values()]
            decisions = self.scheduler.decide(entries, closed=count == self._state.size)
            self._decisions = dict(zip(cells, decisions, strict=True))
            self._version = version
            if self.scheduler.keeps_stops:
                self._keep_stops(cells, entries)
        return self._decisions

    def _entry(self, cells: list[Cell]) -> Entry:
        facts, running = self._sweep.facts, self._sweep.running
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
            self._stops = self._sweep.facts.ledger.stops(self._sweep.plan.sweep_id, self.name)
        return self._stops

    def _keep_stops(self, cells: dict[int, list[Cell]], entries: list[Entry]) -> None:
        """What others reach later must not bring back what was stopped."""
        sweep, stops = self._sweep, self._stopped()
        for group, entry in zip(cells.values(), entries, strict=True):
            first = group[0]
            over = entry.failed or entry.reached >= entry.epochs or first.cell in stops
            if self._decisions[first.idx] == STOP and not over:
                stops[first.cell] = entry.reached
                if sweep.record:
                    sweep.facts.ledger.put_stop(
                        sweep.plan.sweep_id, self.name, first.cell, entry.reached
                    )
