"""The proposals of one search study: between the facts and `ablate/samplers/propose.py`.

A proposal is a fact before its trial runs, so that none is lost or repeated, and two drivers
of one study follow the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ablate.designs.base import Sampled
from ablate.designs.parts import NEUTRAL, NEUTRAL_POINT
from ablate.plan.cell import Cell
from ablate.samplers import branches
from ablate.samplers.earlier import Earlier
from ablate.samplers.propose import propose
from ablate.sweep.ranking import Ranking
from ablate.sweep.settled import Settled
from ablate.sweep.state import SweepState
from ablate.values.paths import has, lookup


class Proposer:
    """How far a search is, and what it proposes next.

    Args:
        state: knows the cells and the facts, and whether to record proposals.
        name: the study. study: how its cells are proposed.
    """

    def __init__(
        self, state: SweepState, settled: Settled, ranking: Ranking, name: str, study: Sampled
    ) -> None:
        self._sweep, self._settled, self._ranking = state, settled, ranking
        self.name, self.study = name, study
        self._state = state.studies[name]
        self._key: str | None = None
        self._told: dict[str, Any] | None = None  # the neutral cell as a proposal

    def ready(self) -> list[Cell]:
        """The next round, if every result of the rounds before it is known; of an asynchronous
        search what the ledger has of it."""
        state, size = self._state, self.study.round
        start = len(state.listed)
        if self._taken() is None or (first := self._neutral()) is None:
            return []
        if first or start >= self.study.trials:
            return first
        known = self._sweep.facts.ledger.proposals(self.key)
        fresh: list[Cell] = []
        if isinstance(size, str):
            while (idx := len(state.listed)) in known and idx < self.study.trials:
                fresh += self._proposed(idx, known[idx]["params"])
            return fresh
        if start and not all(map(self._settled.known, state.cells)):
            return []
        earlier = self.earlier({})
        for idx in range(start, min(start + size, self.study.trials)):
            params = known[idx]["params"] if idx in known else None
            cells = self._proposed(idx, params, earlier)
            beside = self._round_before(start, idx)
            earlier.append(Earlier(cells[0].coords, None, running=True, beside=beside))
            fresh += cells
        return fresh

    def wanting(self) -> bool:
        """Whether this is an asynchronous search with budget left, whose centre is known."""
        if not self.study.asynchronous or self._state.blocked or self._taken() is None:
            return False
        return self._begun() and len(self._state.listed) < self.study.trials

    def demand(self) -> list[Cell]:
        """One more proposal of an asynchronous search, from what is known now."""
        known, idx = self._sweep.facts.ledger.proposals(self.key), len(self._state.listed)
        earlier = self.earlier({i: row["beside"] for i, row in known.items()})
        ahead = self._told is not None
        beside = tuple(i - ahead for i, each in enumerate(earlier) if each.running)
        params = known[idx]["params"] if idx in known else None  # another driver's
        return self._proposed(idx, params, earlier, beside)

    # ------------------------------------------------------------------ within

    def _taken(self) -> list[dict[str, Any]] | None:
        return self._ranking.taken(self.name, ())

    @property
    def key(self) -> str:
        if self._key is None:
            self._key = self._sweep.plan.study_key(self.name, self._taken() or [], self._told)
        return self._key

    @property
    def _neutral_cells(self) -> list[Cell]:
        return [cell for cell in self._state.cells if cell.cell == NEUTRAL]

    def _neutral(self) -> list[Cell] | None:
        """The neutral cell where it has not been listed yet; None while its baseline is unknown.

        It runs beside the first round and says nothing there; an asynchronous search begins once
        its result is known.
        """
        plan = self._sweep.plan
        if plan.spec.studies[self.name].baseline() is None or self._neutral_cells:
            return []
        taken = self._ranking.taken(self.name, NEUTRAL_POINT.arm)
        if taken is None:
            return None
        space, merged = self.study.space, plan.layers(self.name, NEUTRAL_POINT, taken).merged
        found = {path: lookup(merged, path) for path in space if has(merged, path)}
        point = replace(NEUTRAL_POINT, coords=NEUTRAL_POINT.coords | found)
        cells = plan.cells(self.name, point, self.study.trials, taken)
        if not any(cell.error for cell in cells):
            self._told = branches.held(space, cells[0].config)
        self._state.cells += cells
        return cells

    def _begun(self) -> bool:
        """Whether the neutral cell, if there is to be one, has a result."""
        if self._sweep.plan.spec.studies[self.name].baseline() is None:
            return True
        cells = self._neutral_cells
        return bool(cells) and all(map(self._settled.known, cells))

    def _round_before(self, start: int, idx: int) -> tuple[int, ...]:
        """Those of the round that begins at `start` which come before proposal `idx`, by their
        place among all that the sampler is told: a neutral cell stands first, and is of the first
        round."""
        ahead = self._told is not None
        return tuple(range(start + ahead if start else 0, idx + ahead))

    def _proposed(
        self,
        idx: int,
        params: dict[str, Any] | None,
        earlier: list[Earlier] | None = None,
        beside: tuple[int, ...] | None = None,
    ) -> list[Cell]:
        """The cells of proposal `idx`; one without params is made, and becomes a fact."""
        plan, taken, new = self._sweep.plan, self._taken() or [], params is None
        if params is None:
            params = propose(self.study, self.key, earlier or [])
        cells = plan.proposal(self.name, params, idx, taken)
        if self._sweep.record and new:
            ledger = self._sweep.facts.ledger
            ledger.put_proposal(self.key, idx, params, cells[0].config_hash, beside)
            first = ledger.proposals(self.key)[idx]["params"]
            if first != params:  # another driver's, with other versions perhaps
                cells = plan.proposal(self.name, first, idx, taken)
        self._state.listed.add(idx)
        self._state.cells += cells
        return cells

    def earlier(self, beside: Mapping[int, tuple[int, ...]]) -> list[Earlier]:
        """What the known proposals came to, in their order.

        beside: of an asynchronous search what the ledger says; rounds tell it by themselves.
        """
        earlier, size, told = list[Earlier](), self.study.round, self._told
        if told is not None:
            first = replace(self._earlier(self._neutral_cells), params=told)
            if isinstance(size, int) and not self._state.listed:  # known or not: as always
                first = Earlier(told, None, running=True)
            earlier.append(first)
        for idx, cells in self._state.by_idx().items():
            if cells[0].cell == NEUTRAL:
                continue
            if isinstance(size, int):
                waiting = self._round_before(idx // size * size, idx)
            else:
                waiting = tuple(place + (told is not None) for place in beside.get(idx, ()))
            earlier.append(replace(self._earlier(cells), beside=waiting))
        return earlier

    def _earlier(self, cells: list[Cell]) -> Earlier:
        params = cells[0].coords
        if not all(map(self._settled.known, cells)):
            return Earlier(params, None, running=True)
        metrics = [objective.metric for objective in self._sweep.plan.objectives(self.name)]
        values = self._ranking.values(cells, metrics)
        reports = None if values is not None else self._settled.reports(cells[0])
        return Earlier(params, values, reports=reports or {})
