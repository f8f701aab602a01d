"""Seeds by precision: a first stage decides once how many seeds a table's rows get.

    seeds: {precision: 0.25, at_most: 20}

All rows train on the first seeds. Their differences to the baseline then give the number of seeds
at which each interval reaches at most `precision` to either side, and all rows get that many. The
final interval keeps the first stage's standard deviation and degrees of freedom, so that its level
holds whatever the scatter is; looking after every seed would give up to 12 % false verdicts. The
number follows from recorded results alone, so a stopped sweep ends with the same.

References:
    Stein, Annals of Mathematical Statistics 16 (1945).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ConfigDict, Field, model_validator

from ablate.schedulers.racing import Standing
from trainables.config.registry import Strict
from trainables.errors import ConfigError


class PrecisionSeeds(Strict):
    """Seeds of a study whose number follows from a first stage.

    precision: wanted half-width of the intervals, in the unit in which the primary metric is shown;
    None: 0.8 of the smallest effect of interest. at_most: never more seeds. first: of the first
    stage, 0 … first − 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: float | None = Field(None, gt=0)
    at_most: int = Field(20, ge=3, le=1000)
    first: int = Field(5, ge=2)

    @model_validator(mode="after")
    def check_order(self) -> PrecisionSeeds:
        if self.first > self.at_most:
            text = f"{self.at_most} is below the first stage of {self.first}: give more"
            raise ConfigError("at_most", text)
        return self


def evaluate_precision(
    seeds: PrecisionSeeds,
    values: Mapping[int, Mapping[int, float | None]],
    baseline: int,
    half_width: float,
) -> Standing:
    """Return how many seeds the cells have by now, or are to get.

    Args:
        values: cell → {seed: value of the primary metric}; None: it failed; without a seed: not
            known yet.
        baseline: the cell that the others are compared with.
        half_width: wanted, on the scale of the values.
    """
    from reports.stats.power import choose_final_seeds  # with it all of SciPy's statistics

    cells, stage = tuple(values), range(seeds.first)
    if any(seed not in values[cell] for cell in cells for seed in stage):
        return Standing(cells, seeds.first)
    base = values[baseline]
    rows = [_subtract(values[cell], base, stage) for cell in cells if cell != baseline]
    rows = [row for row in rows if len(row) > 1]
    count = choose_final_seeds(rows, half_width, seeds.at_most) if rows else seeds.first
    return Standing(cells, max(count, seeds.first))


def _subtract(
    row: Mapping[int, float | None], base: Mapping[int, float | None], stage: Sequence[int]
) -> list[float]:
    pairs = ((row[seed], base[seed]) for seed in stage)
    return [a - b for a, b in pairs if a is not None and b is not None]
