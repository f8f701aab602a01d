"""Rank the cells of complete studies and pass their values to studies centred on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablate.designs.parts import NEUTRAL, NEUTRAL_POINT, Around, FactorLevels, Point
from ablate.designs.promote import to_promoted_point
from ablate.plan.inheritance import get_neutral_options, is_neutral
from ablate.plan.plan import Cell
from ablate.sweep.state import SweepState
from reports.best import average_values, rank_cells
from trainables.words.paths import get_at, has_path


@dataclass(frozen=True)
class RankedCell:
    """A ranked cell of a study.

    Attributes:
        cell: the cell at its first seed.
        value: mean objective over seeds and folds.
        values: the settings that it passes on, by path: its own and those that it inherited.
    """

    cell: Cell
    value: float
    values: dict[str, Any]


class StudyRanking:
    """Rank cells, and resolve what studies inherit; block a study whose centre lacks the cell."""

    def __init__(self, state: SweepState) -> None:
        self._state = state
        self._rankings: dict[str, list[RankedCell]] = {}
        self._inherited: dict[tuple[str, FactorLevels], list[dict[str, Any]]] = {}

    def average_metrics(
        self, cells: Sequence[Cell], metrics: Sequence[str]
    ) -> tuple[float, ...] | None:
        """Return each metric's mean over a cell's seeds and folds; None if any has no value."""
        facts = [self._state.facts[cell.trial_id] for cell in cells]
        if any(cell.error for cell in cells) or any(fact.status != "done" for fact in facts):
            return None
        return average_values([fact.list_values(metrics) for fact in facts])

    def rank_study(self, name: str) -> list[RankedCell]:
        """Return the cells of a complete study, best first.

        Equal cells are ranked by their index. Cells that failed at a seed or fold, that broke the
        limits of their search, or that a scheduler or race ended, are left out.
        """
        if name in self._rankings:
            return self._rankings[name]
        objectives = [
            (objective.metric, objective.direction == "maximize")
            for objective in self._state.plan.list_objectives(name)
        ]
        study = self._state.studies[name]
        groups = study.group_by_index()
        means = {
            idx: self.average_metrics(cells, [metric for metric, _ in objectives])
            for idx, cells in groups.items()
            if idx not in study.dropped and not self._state.has_exceeded_limits(cells)
        }
        self._rankings[name] = [
            RankedCell(groups[idx][0], values[0], self._export_values(name, groups[idx][0]))
            for idx, values in rank_cells(means, objectives)
        ]
        return self._rankings[name]

    def resolve_point(self, name: str, point: Point) -> Point:
        """Return a study's point; a point that trains a ranked cell again gets that cell's name."""
        around = self._state.plan.spec.studies[name].find_source_cell(point.levels)
        if around is None:
            return point
        source = self.rank_study(around.best_of)[around.rank - 1].cell
        return to_promoted_point(point, source.cell, source.coords)

    def resolve_inherited(self, name: str, levels: FactorLevels) -> list[dict[str, Any]] | None:
        """Return the settings, by path, that a cell takes from each of the studies it needs.

        None means that a needed study is incomplete, or has no cell of the wanted rank.
        """
        if (name, levels) in self._inherited:
            return self._inherited[name, levels]
        layers = []
        for around in self._state.plan.spec.studies[name].list_needed_bases(levels):
            values = self._resolve_base(name, around)
            if values is None:
                return None
            layers.append(values)
        self._inherited[name, levels] = layers
        return layers

    def _export_values(self, name: str, cell: Cell) -> dict[str, Any]:
        """Return the settings by path that a cell passes on: what it inherited and what it sets."""
        # list the paths that the study varies
        study = self._state.plan.spec.studies[name]
        paths, levels = dict.fromkeys(study.paths), FactorLevels()
        if study.is_fixed:
            point = study.all_points[cell.idx]
            levels = point.levels
            paths.update(dict.fromkeys(study.export_params(point)))
        elif cell.cell == NEUTRAL:
            levels = NEUTRAL_POINT.levels
        if levels == NEUTRAL_POINT.levels:
            options = get_neutral_options(cell.config["method"]["name"])
            paths.update(dict.fromkeys(f"method.{option}" for option in options))
        # add the inherited paths, and read all values from the cell's configuration
        for values in self._inherited.get((name, levels)) or ():
            paths.update(dict.fromkeys(values))
        outermost = [p for p in paths if not any(p.startswith(f"{other}.") for other in paths)]
        return {
            path: get_at(cell.config, path) for path in outermost if has_path(cell.config, path)
        }

    def _resolve_base(self, name: str, around: Around) -> dict[str, Any] | None:
        """Return the settings, by path, that study `name` takes from the cell that `around` names.

        None: that cell's study is incomplete, or has no such cell, which blocks study `name`.
        """
        needed = self._state.studies[around.best_of]
        if needed.blocked and not needed.short:  # a short study ends with fewer cells
            reason = f"the study waits for {around.best_of}, which is blocked"
            self._state.studies[name].blocked = reason
        if not needed.complete:
            return None
        # pick the cell of the wanted rank
        ranking = self.rank_study(around.best_of)
        if around.neutral is False:  # only cells with the method switched on count
            ranking = [best for best in ranking if not is_neutral(best.cell.config)]
        if len(ranking) < around.rank:
            self._block_study(name, around, len(ranking))
            return None
        best = ranking[around.rank - 1]
        if around.take is None:
            return best.values
        return {path: get_at(best.cell.config, path) for path in around.take}

    def _block_study(self, name: str, around: Around, succeeded: int) -> None:
        """Mark a study as blocked, because a study that it needs has too few cells with results.

        `succeeded` counts these cells. A promotion still trains the cells that have results.
        """
        state, study = self._state.studies[name], self._state.plan.spec.studies[name]
        if succeeded == 0 and around.neutral is None:
            state.blocked = f"no trial of {around.best_of} succeeded"
        elif study.find_source_cell() is not None and around not in study.around:
            if not all(self._state.studies[base].complete for base in study.find_base_studies()):
                return  # its neutral cell waits for a baseline
            state.short = True  # the promotion has fewer cells than it asks for, and trains these
            state.blocked = (
                f"the study trains {study.size} cells of {around.best_of} again, of which only "
                f"{succeeded} have a result"
            )
        else:
            kind = "cells" if around.neutral is None else "cells with the method on"
            state.blocked = (
                f"the study needs rank {around.rank} of {around.best_of}, of which only "
                f"{succeeded} {kind} have a result"
            )
