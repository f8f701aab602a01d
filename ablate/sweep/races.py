"""Give cells seeds as results need them: a race over seeds, and seeds by precision.

Racing gives no further seeds to cells that are clearly worse than the best. All cells get the first
seeds. Then, after each seed, a cell is dropped if the whole interval of its paired difference to
the leader is below zero. The race depends only on results, so a resumed sweep continues it.
Intervals are paired t at 1 − (1 − level) / (looks · (cells − 1)), so that the best cell is dropped
with a probability of at most 1 − level over all looks. A dropped cell's mean is biased downwards;
its row gets no verdict.

With `seeds: {precision: 0.25, at_most: 20}` a first stage decides how many seeds all rows of a
table get. All rows train on the first seeds. Their differences to the baseline then give the number
of seeds at which each interval has at most `precision` to either side. The final interval is the
longer of two. Stein's keeps the first stage's standard deviation and degrees of freedom, so that
its level holds for any scatter; testing after every seed would give up to 12 % false verdicts. The
ordinary one of all seeds holds where later seeds scatter more, as with rare collapses. A resumed
sweep ends with the same number, because it depends only on recorded results.

With `splits`, the first stage has two or three seeds a split. The noise of training within its
splits gives the number of seeds a split, with which this noise alone gives intervals of
`precision`. The final interval is the ordinary one over splits, whose means are independent of that
noise, so that it keeps its level. If the part of split × method alone is longer than `precision`,
no number of seeds is enough, and the first stage is the last.

References:
    Maron and Moore, "Hoeffding races", NIPS 1993.
    Birattari et al., "A racing algorithm for configuring metaheuristics" (F-race), GECCO 2002.
    Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance",
    Annals of Mathematical Statistics 16 (1945).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ablate.designs.parts import PrecisionSeeds, Race
from ablate.plan.plan import Cell
from ablate.spec.checks import find_baseline_index
from ablate.sweep.ranking import StudyRanking
from ablate.sweep.state import StudyState, SweepState
from trainables.words.metrics import HALF_WIDTH, choose_smallest_effect, display_scale


@dataclass(frozen=True)
class Standing:
    """The state of a race.

    Attributes:
        alive: the cells that go on.
        seeds: number of seeds that they have or get next.
        dropped: dropped cell → number of its seeds.
    """

    alive: tuple[int, ...]
    seeds: int
    dropped: dict[int, int] = field(default_factory=dict)


def evaluate_race(
    race: Race, seeds: Sequence[int], values: Mapping[int, Mapping[int, float | None]]
) -> Standing:
    """Run the race over the results so far; return the cells that go on and those dropped.

    From `race.after` seeds on, but not after the last, failed and clearly worse cells are dropped.

    Args:
        race: the options.
        seeds: the study's seeds, in order.
        values: cell → {seed: value}. None stands for a failure; seeds without a result are absent.
    """
    alive, dropped = list(values), dict[int, int]()
    count = min(race.after, len(seeds))
    looks = max(1, len(seeds) - count)  # comparisons of each cell: none after the last seed
    level = 1 - (1 - race.level) / (looks * max(1, len(values) - 1))  # Bonferroni's correction
    while True:
        first_seeds = seeds[:count]
        if not alive or any(seed not in values[cell] for cell in alive for seed in first_seeds):
            return Standing(tuple(alive), count, dropped)  # a result is still missing
        complete = {
            cell: {seed: value for seed in first_seeds if (value := values[cell][seed]) is not None}
            for cell in alive
        }
        survivors = [cell for cell in alive if len(complete[cell]) == count]
        if survivors:
            leader = max(survivors, key=lambda cell: math.fsum(complete[cell].values()))
            survivors = [
                cell for cell in survivors if not _is_worse(complete[cell], complete[leader], level)
            ]
        if count < len(seeds):
            dropped |= {cell: count for cell in alive if cell not in survivors}
            alive = survivors
        if count >= len(seeds) or not alive:
            return Standing(tuple(alive), count, dropped)
        count += 1


def _is_worse(cell: Mapping[int, float], leader: Mapping[int, float], level: float) -> bool:
    """Return whether the whole interval of a cell's difference to the leader is below zero."""
    from reports.stats.paired import paired_difference  # imports SciPy's statistics

    difference = paired_difference(cell, leader, level=level)
    return difference is not None and difference.high is not None and difference.high < 0


class Racing:
    """Run a race in one study: list repeats seed by seed and drop cells that fall behind."""

    def __init__(self, sweep: SweepState, ranking: StudyRanking, name: str, race: Race) -> None:
        self._sweep, self._ranking, self.name, self.race = sweep, ranking, name, race
        self.metric = sweep.plan.spec.objective  # by which cells are compared
        # idx → seed → cells, one for each split
        self._cells_by_seed: dict[int, dict[int, list[Cell]]] = {}
        self._listed: set[tuple[int, int]] = set()  # (idx, seed) of the cells listed so far

    def list_new_cells(self, state: StudyState) -> list[Cell]:
        """Return the cells that the race adds now; set the study's size and dropped cells."""
        # build the cells of all points and seeds, once the settings that they inherit are known
        plan, study = self._sweep.plan, self._sweep.plan.spec.studies[self.name]
        if not self._cells_by_seed:
            bases = [
                self._ranking.resolve_inherited(self.name, point.levels)
                for point in study.all_points
            ]
            if any(values is None for values in bases) and not state.short:  # wait for values
                return []
            for idx, (point, values) in enumerate(zip(study.all_points, bases, strict=True)):
                if values is None:  # the cell that the point trains again does not exist
                    continue
                promoted = self._ranking.resolve_point(self.name, point)
                cells = plan.build_cells(self.name, promoted, idx, values)  # split by split
                count = len(plan.list_seeds(self.name))
                self._cells_by_seed[idx] = {
                    seed: cells[i::count] for i, seed in enumerate(plan.list_seeds(self.name))
                }
                state.listed.add(idx)
        # drop cells that are clearly worse by the results so far, and count the cells to come
        seeds = plan.list_seeds(self.name)
        standing = self._evaluate(seeds)
        state.dropped = standing.dropped
        cell_count = study.size - len(standing.dropped)
        seed_count = self._count_seeds(seeds, standing) * len(plan.list_folds(self.name))
        state.size = sum(standing.dropped.values()) + seed_count * cell_count
        # list the next seeds of the remaining cells
        fresh = [
            cell
            for idx in standing.alive
            for seed in seeds[: standing.seeds]
            if (idx, seed) not in self._listed
            for cell in self._cells_by_seed[idx][seed]
        ]
        self._listed |= {(cell.idx, cell.seed) for cell in fresh}
        return fresh

    def _evaluate(self, seeds: Sequence[int]) -> Standing:
        return evaluate_race(
            self.race, seeds, {idx: self._collect_values(idx)[None] for idx in self._cells_by_seed}
        )

    def _count_seeds(self, seeds: Sequence[int], standing: Standing) -> int:
        return len(seeds)

    def _collect_values(self, idx: int) -> dict[int | None, dict[int, float | None]]:
        """Map each split, and each seed at which cell `idx` is settled, to its metric.

        Without splits, the only split is None. The metric is None if the trial failed.
        """
        values: dict[int | None, dict[int, float | None]] = {
            split: {} for split in self._sweep.plan.list_folds(self.name)
        }
        for seed, cells in self._cells_by_seed[idx].items():
            for cell in cells:
                if (idx, seed) in self._listed and self._sweep.is_settled(cell):
                    means = self._ranking.average_metrics([cell], [self.metric])
                    values[cell.fold][seed] = None if means is None else means[0]
        return values


# ---------------------------------------------------------------- seeds by precision


def evaluate_precision(
    seeds: PrecisionSeeds,
    values: Mapping[int, Mapping[int | None, Mapping[int, float | None]]],
    baseline: int,
    half_width: float,
    *,
    rule: str,
    looks: int = 1,
) -> Standing:
    """Return all cells and the number of seeds that each gets, by the results so far.

    Args:
        seeds: the options.
        values: cell → {split: {seed: value of the primary metric}}. The split is None in a study
            without splits. None stands for a failure; seeds without a result are absent.
        baseline: the cell that the others are compared with.
        half_width: wanted half-width, on the scale of the values.
        rule: name of the rule that judges the table.
        looks: number of planned looks at its verdicts. The first has the longest intervals.
    """
    from reports.stats.blocks import compute_look_level
    from reports.stats.planning import (
        Family,
        choose_final_seeds,  # imports SciPy's statistics
        choose_final_seeds_of_splits,
        estimate_components,
    )

    cells, stage, level = tuple(values), range(seeds.first), compute_look_level(1, looks)
    if any(seed not in row for cell in cells for row in values[cell].values() for seed in stage):
        return Standing(cells, seeds.first)  # the first stage is incomplete
    if None not in values[baseline]:
        runs = [_select_runs(values[cell], stage) for cell in (baseline, *values)]
        distinct = [row for i, row in enumerate(runs) if row not in runs[:i]]
        components = estimate_components(distinct)
        count = None
        if components is not None:
            family = Family(rule, len(distinct) - 1, level=level)
            count = choose_final_seeds_of_splits(components, family, half_width, seeds.at_most)
        return Standing(cells, max(count or 0, seeds.first))
    base = values[baseline][None]
    differences = [_subtract(values[cell][None], base, stage) for cell in cells if cell != baseline]
    rows = [row for row in differences if len(row) > 1]  # one value has no spread
    count = seeds.first
    if rows:
        count = choose_final_seeds(rows, half_width, seeds.at_most, level)
    return Standing(cells, max(count, seeds.first))


def _select_runs(
    row: Mapping[int | None, Mapping[int, float | None]], stage: Sequence[int]
) -> dict[int, dict[int, float]]:
    """Return split → seed → value of the runs of the stage that have a value."""
    runs = {
        split: {seed: value for seed in stage if (value := by_seed[seed]) is not None}
        for split, by_seed in row.items()
        if split is not None
    }
    return {split: by_seed for split, by_seed in runs.items() if by_seed}


def _subtract(
    row: Mapping[int, float | None], base: Mapping[int, float | None], stage: Sequence[int]
) -> list[float]:
    """Return row − base at each seed of the stage at which both have a value."""
    pairs = ((row[seed], base[seed]) for seed in stage)
    return [a - b for a, b in pairs if a is not None and b is not None]


class Staging(Racing):
    """Run a study whose first stage determines its number of seeds (`PrecisionSeeds`)."""

    def __init__(
        self, sweep: SweepState, ranking: StudyRanking, name: str, precision: PrecisionSeeds
    ) -> None:
        """Determine the wanted half-width of the intervals, and the baseline's index."""
        super().__init__(sweep, ranking, name, Race())  # default options, never read
        self.precision = precision
        plan = sweep.plan
        self.metric = plan.find_primary_metric(name)
        smallest_effect = choose_smallest_effect(plan.spec.report.smallest, self.metric)
        wanted = precision.precision or HALF_WIDTH * smallest_effect  # in the unit shown
        self.half_width = wanted / display_scale(self.metric)
        self.baseline = find_baseline_index(plan.spec.report, name, plan.spec.studies[name])

    def _evaluate(self, seeds: Sequence[int]) -> Standing:
        values = {idx: self._collect_values(idx) for idx in self._cells_by_seed}
        if self.baseline not in values:
            return Standing(tuple(values), self.precision.first)
        report = self._sweep.plan.spec.report
        return evaluate_precision(
            self.precision,
            values,
            self.baseline,
            self.half_width,
            rule=report.rule,
            looks=report.looks or 1,
        )

    def _count_seeds(self, seeds: Sequence[int], standing: Standing) -> int:
        """Return each cell's number of seeds; before the first stage's end, the upper limit."""
        stage = range(self.precision.first)
        is_complete = all(
            all((idx, seed) in self._listed for seed in stage)
            and all(len(row) >= len(stage) for row in self._collect_values(idx).values())
            for idx in self._cells_by_seed
        )
        return standing.seeds if is_complete else len(seeds)
