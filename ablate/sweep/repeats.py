"""The race of one study at work: which repeats over seeds it lists, seed by seed."""

from __future__ import annotations

from ablate.plan.cell import Cell
from ablate.schedulers.racing import Race, standing
from ablate.sweep.ranking import Ranking
from ablate.sweep.settled import Settled
from ablate.sweep.state import StudyState, SweepState


class Racing:
    """Lists the cells of a study as its race comes to them."""

    def __init__(
        self, state: SweepState, settled: Settled, ranking: Ranking, name: str, race: Race
    ) -> None:
        self._plan, self._settled, self._ranking = state.plan, settled, ranking
        self.name, self.race = name, race
        self._every: dict[int, dict[int, Cell]] = {}  # idx → seed → cell
        self._listed: set[tuple[int, int]] = set()

    def fresh(self, state: StudyState) -> list[Cell]:
        """Cells that the race has come to since the last call; sets the study's size, and what is
        dropped."""
        plan, study = self._plan, self._plan.spec.studies[self.name]
        if not self._every:
            taken = [self._ranking.taken(self.name, point.arm) for point in study.listed]
            if any(values is None for values in taken) and not state.short:
                return []
            for idx, (point, values) in enumerate(zip(study.listed, taken, strict=True)):
                if values is None:
                    continue
                promoted = self._ranking.promoted(self.name, point)
                cells = plan.cells(self.name, promoted, idx, values)
                self._every[idx] = {cell.seed: cell for cell in cells}
                state.listed.add(idx)
        seeds = plan.seeds(self.name)
        now = standing(self.race, seeds, {idx: self._values(idx) for idx in self._every})
        state.dropped = now.dropped
        whole = study.size - len(now.dropped)
        state.size = sum(now.dropped.values()) + len(seeds) * whole
        fresh = [
            self._every[idx][seed]
            for idx in now.alive
            for seed in seeds[: now.seeds]
            if (idx, seed) not in self._listed
        ]
        self._listed |= {(cell.idx, cell.seed) for cell in fresh}
        return fresh

    def _values(self, idx: int) -> dict[int, float | None]:
        return {
            seed: self._ranking.mean([cell])
            for seed, cell in self._every[idx].items()
            if (idx, seed) in self._listed and self._settled.settled(cell)
        }
