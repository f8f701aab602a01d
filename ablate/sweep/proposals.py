"""The proposals of one search study: between the facts and `ablate/samplers/propose.py`.

A proposal is a fact before its trial runs, so that none is lost or repeated, and two drivers
of one study follow the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ablate.designs.base import Sampled
from ablate.plan.cell import Cell
from ablate.samplers.earlier import Earlier
from ablate.samplers.propose import propose
from ablate.sweep.ranking import Ranking
from ablate.sweep.settled import Settled
from ablate.sweep.state import SweepState


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

    def ready(self) -> list[Cell]:
        """The next round, if every result of the rounds before it is known; of an asynchronous
        search what the ledger has of it."""
        state, size = self._state, self.study.round
        start = len(state.listed)
        if start >= self.study.trials or self._taken() is None:
            return []
        known = self._sweep.facts.ledger.proposals(self.key)
        fresh: list[Cell] = []
        if isinstance(size, str):
            while (idx := len(state.listed)) in known and idx < self.study.trials:
                fresh += self._proposed(idx, known[idx]["params"])
            return fresh
        if not all(map(self._settled.known, state.cells)):
            return []
        earlier = self.earlier({})
        for idx in range(start, min(start + size, self.study.trials)):
            params = known[idx]["params"] if idx in known else None
            cells = self._proposed(idx, params, earlier)
            earlier.append(
                Earlier(cells[0].coords, None, running=True, beside=(*range(start, idx),))
            )
            fresh += cells
        return fresh

    def wanting(self) -> bool:
        """Whether this is an asynchronous search with budget left, whose centre is known."""
        if not self.study.asynchronous or self._state.blocked:
            return False
        return len(self._state.listed) < self.study.trials and self._taken() is not None

    def demand(self) -> list[Cell]:
        """One more proposal of an asynchronous search, from what is known now."""
        known, idx = self._sweep.facts.ledger.proposals(self.key), len(self._state.listed)
        earlier = self.earlier({i: row["beside"] for i, row in known.items()})
        beside = tuple(i for i, each in enumerate(earlier) if each.running)
        params = known[idx]["params"] if idx in known else None  # another driver's
        return self._proposed(idx, params, earlier, beside)

    # ------------------------------------------------------------------ within

    def _taken(self) -> list[dict[str, Any]] | None:
        return self._ranking.taken(self.name, ())

    @property
    def key(self) -> str:
        if self._key is None:
            self._key = self._sweep.plan.study_key(self.name, self._taken() or [])
        return self._key

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
        earlier = []
        for idx, cells in self._state.by_idx().items():
            waiting = beside.get(idx, ())
            if isinstance(self.study.round, int):
                waiting = tuple(range(idx // self.study.round * self.study.round, idx))
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
