"""The proposals of one search study: between the facts and `ablate/search.py`.

A proposal is a fact before its trial runs, so that none is lost or repeated, and two drivers
of one study follow the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ablate.earlier import Earlier
from ablate.search import propose

if TYPE_CHECKING:
    from ablate.cell import Cell
    from ablate.progression import Progression, StudyState


class Proposer:
    """How far a search is, and what it proposes next.

    Args:
        progression: knows the study's cells and the facts, and whether to record proposals.
        name: the study.
    """

    def __init__(self, progression: Progression, name: str) -> None:
        self._progression, self.name = progression, name
        study = progression.plan.spec.studies[name].sampling()
        assert study is not None
        self.study = study
        self._key: str | None = None

    def ready(self) -> list[Cell]:
        """The next round, if every result of the rounds before it is known; of an asynchronous
        search what the ledger has of it."""
        state = self._state
        start = len(state.listed)
        if start >= self.study.trials or self._taken() is None:
            return []
        known = self._progression.facts.ledger.proposals(self.key)
        found: list[Cell] = []
        if isinstance(self.study.round, str):
            while (idx := len(state.listed)) in known and idx < self.study.trials:
                found += self._proposed(idx, known[idx]["params"])
            return found
        if not all(map(self._progression.known, state.cells)):
            return []
        earlier = self.earlier({})
        for idx in range(start, min(start + self.study.round, self.study.trials)):
            params = known[idx]["params"] if idx in known else None
            cells = self._proposed(idx, params, earlier)
            earlier.append(
                Earlier(cells[0].coords, None, running=True, beside=(*range(start, idx),))
            )
            found += cells
        return found

    def wanting(self) -> bool:
        """Whether this is an asynchronous search with budget left, whose centre is known."""
        if not self.study.asynchronous or self._state.blocked:
            return False
        return len(self._state.listed) < self.study.trials and self._taken() is not None

    def demand(self) -> list[Cell]:
        """One more proposal of an asynchronous search, from what is known now."""
        known, idx = self._progression.facts.ledger.proposals(self.key), len(self._state.listed)
        earlier = self.earlier({i: row["beside"] for i, row in known.items()})
        beside = tuple(i for i, each in enumerate(earlier) if each.running)
        params = known[idx]["params"] if idx in known else None  # another driver's
        return self._proposed(idx, params, earlier, beside)

    # ------------------------------------------------------------------ within

    @property
    def _state(self) -> StudyState:
        return self._progression.studies[self.name]

    def _taken(self) -> list[dict[str, Any]] | None:
        return self._progression.taken(self.name, ())

    @property
    def key(self) -> str:
        if self._key is None:
            self._key = self._progression.plan.study_key(self.name, self._taken() or [])
        return self._key

    def _proposed(
        self, idx: int, params: dict[str, Any] | None, earlier: list[Earlier] | None = None,
        beside: tuple[int, ...] | None = None,
    ) -> list[Cell]:  # fmt: skip
        """The cells of proposal `idx`; one without params is made, and becomes a fact."""
        plan, taken, new = self._progression.plan, self._taken() or [], params is None
        if params is None:
            params = propose(self.study, self.key, earlier or [])
        cells = plan.proposal(self.name, params, idx, taken)
        if self._progression.record and new:
            ledger = self._progression.facts.ledger
            ledger.put_proposal(self.key, idx, params, cells[0].config_hash, beside)
            kept = ledger.proposals(self.key)[idx]["params"]
            if kept != params:  # another driver was first, with other versions perhaps
                cells = plan.proposal(self.name, kept, idx, taken)
        self._state.listed.add(idx)
        self._state.cells += cells
        return cells

    def earlier(self, beside: Mapping[int, tuple[int, ...]]) -> list[Earlier]:
        """What the known proposals came to, in their order.

        beside: of an asynchronous search what the ledger says; rounds tell it by themselves.
        """
        by_idx: dict[int, list[Cell]] = {}
        for cell in self._state.cells:
            by_idx.setdefault(cell.idx, []).append(cell)
        found = []
        for idx, cells in sorted(by_idx.items()):
            waiting = beside.get(idx, ())
            if isinstance(self.study.round, int):
                waiting = tuple(range(idx // self.study.round * self.study.round, idx))
            found.append(replace(self._earlier(cells), beside=waiting))
        return found

    def _earlier(self, cells: list[Cell]) -> Earlier:
        progression, params = self._progression, cells[0].coords
        if not all(map(progression.known, cells)):
            return Earlier(params, None, running=True)
        metrics = [objective.metric for objective in progression.plan.objectives(self.name)]
        values = progression.values(cells, metrics)
        schedule = progression.schedules.get(self.name)
        if values is not None or schedule is None:
            return Earlier(params, values)
        return Earlier(params, None, reports=schedule.reports(cells[0].idx))
