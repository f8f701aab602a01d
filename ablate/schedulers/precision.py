"""Seeds by precision: a first stage decides how many seeds all rows of a table get.

    seeds: {precision: 0.25, at_most: 20}

All rows train on the first seeds. Their differences to the baseline then give the number of seeds
at which each interval has at most `precision` to either side. The final interval is the longer of
two. Stein's keeps the first stage's standard deviation and degrees of freedom, so that its level
holds for any scatter; testing after every seed would give up to 12 % false verdicts. The ordinary
one of all seeds holds where later seeds scatter more, as with rare collapses. A resumed sweep ends
with the same number, because it depends only on recorded results.

With `splits`, the first stage has two or three seeds a split. The noise of training within its
splits gives the number of seeds a split, with which this noise alone gives intervals of
`precision`. The final interval is the ordinary one over splits, whose means are independent of that
noise, so that it keeps its level. If the part of split × method alone is longer than `precision`,
no number of seeds is enough, and the first stage is the last.

References:
    Stein, "A two-sample test for a linear hypothesis whose power is independent of the variance",
    Annals of Mathematical Statistics 16 (1945).
"""

from collections.abc import Mapping, Sequence

from pydantic import Field, model_validator

from ablate.schedulers.racing import Standing
from trainables.config.registry import Strict
from trainables.words.errors import ConfigError


class PrecisionSeeds(Strict, extra="forbid", frozen=True):
    """Seeds of a study whose number follows from a first stage.

    precision: wanted half-width of the intervals, in the unit in which tables show the primary
        metric. Default: 0.8 of the smallest effect of interest.
    at_most: largest number of seeds.
    first: number of seeds of the first stage (0 … first − 1), of each split in a study with
        `splits`.
    """

    precision: float | None = Field(None, gt=0)
    at_most: int = Field(20, ge=3, le=1000)
    first: int = Field(5, ge=2)

    @model_validator(mode="after")
    def check_order(self) -> "PrecisionSeeds":
        """Check that the first stage does not exceed the largest number of seeds."""
        if self.first > self.at_most:
            raise ConfigError(
                "at_most",
                f"`at_most` is {self.at_most}, below the first stage of {self.first} seeds",
                "Raise `at_most`, or lower `first`",
            )
        return self


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
