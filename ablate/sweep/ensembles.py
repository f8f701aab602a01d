"""Ensembles of a study's folds: an evaluation that waits for several trials.

With `evaluate: [ensemble]` the trial of fold 0 is read once more when all folds of its cell and
seed are done: the networks' embeddings side by side (`trainables/jobs/ensemble.py`). A trial's
configuration says of how many folds it is one, and the others differ from it in `data.split.fold`
alone, so that a trial has one ensemble whatever studies share it. Where a fold has failed there
is none, and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ablate.designs.base import ENSEMBLE as SPLIT
from ablate.plan.cell import Cell
from ablate.sweep.state import SweepState
from trainables.core.trial_folder import trial_folder
from trainables.jobs.request import Fold
from trainables.machine.files import inside


class Ensembles:
    """Which cells' ensembles can be evaluated."""

    def __init__(self, state: SweepState) -> None:
        self._sweep = state
        self._groups: dict[tuple[str, int, int], list[Cell]] = {}
        self._counted: dict[str, int] = {}

    def group(self, cell: Cell) -> list[Cell]:
        """The folds of one cell and seed, in order."""
        state = self._sweep.studies[cell.study]
        if self._counted.get(cell.study) != len(state.cells):
            self._counted[cell.study] = len(state.cells)
            of_study = [key for key in self._groups if key[0] == cell.study]
            for key in of_study:
                del self._groups[key]
            for each in state.cells:
                self._groups.setdefault((each.study, each.idx, each.seed), []).append(each)
        return self._groups.get((cell.study, cell.idx, cell.seed), [cell])

    def wanted(self, cell: Cell) -> tuple[str, ...]:
        """The splits that a cell can be read on: without an ensemble that never will be."""
        if SPLIT not in cell.evaluate:
            return cell.evaluate
        facts = self._sweep.facts
        lost = any(c.error or facts[c.trial_id].status == "failed" for c in self.group(cell))
        return tuple(split for split in cell.evaluate if split != SPLIT or not lost)

    def firsts(self, cells: Iterable[Cell]) -> list[Cell]:
        """The cells whose ensembles these belong to."""
        return [
            each
            for cell in cells
            if cell.fold is not None
            for each in self.group(cell)
            if SPLIT in each.evaluate
        ]

    def members(self, cells: Iterable[Cell], trials: Path) -> tuple[Fold, ...] | None:
        """The parts of a trial's ensemble as a job names them; None while one is missing."""
        facts = self._sweep.facts
        for cell in cells:
            if SPLIT not in cell.evaluate:
                continue
            group = self.group(cell)
            if any(facts[each.trial_id].status != "done" for each in group):
                return None
            rows = [facts.ledger.trial(each.trial_id) or {} for each in group]
            return tuple(
                Fold(
                    each.config,
                    each.seed,
                    inside(trial_folder(trials, each.trial_id), row["export"]),
                )
                for each, row in zip(group, rows, strict=True)
            )
        return None
