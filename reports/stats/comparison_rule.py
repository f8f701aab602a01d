"""The rule by which a table's rows are judged against their baseline.

A rule gives each row one interval; the verdict follows from that interval and δ, the smallest
effect of interest, so that no page can print an interval that its verdict contradicts. A spec names
the rule (`rule: dunnett_and_t`); `reports/kinds.py` lists those of this package and of others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal

import numpy as np

from reports.kinds import load_kind
from reports.stats.blocks import Blocks, are_equal
from reports.stats.paired import Difference

Call = Literal["better", "worse", "no difference", "open"]
LEVEL = 0.95  # of every interval


@dataclass(frozen=True)
class Sample:
    """A table's rows, as a rule sees them: the distinct ones, the baseline apart.

    Attributes:
        baseline: block → value. A block is a seed, or a split averaged over its seeds.
        rows: name → the same, a row for each comparison.
        first_stage: the blocks that decided how many there are, where precision was asked for.
            Standard deviations and degrees of freedom then come from these alone (Stein).
        overlap: n_test / n_train where blocks are redrawn splits, which share classes; 0 for seeds
            and for splits with disjoint test parts. The variance of a mean of J blocks is then
            s² (1/J + overlap) (Nadeau and Bengio).
    """

    baseline: Blocks
    rows: Mapping[str, Blocks]
    first_stage: Collection[int] | None = None
    overlap: float = 0.0

    def list_common_blocks(self, name: str) -> list[int]:
        """Return the blocks that a row and the baseline both have."""
        return sorted(self.baseline.keys() & self.rows[name].keys())

    def compute_differences(self, name: str) -> np.ndarray:
        """Return row − baseline at each common block."""
        row = self.rows[name]
        return np.array([row[b] - self.baseline[b] for b in self.list_common_blocks(name)])

    def restrict_to_first_stage(self) -> Sample:
        """Return the part from which errors are estimated."""
        if self.first_stage is None:
            return self
        stage = set(self.first_stage)
        rows = {
            name: {b: y for b, y in row.items() if b in stage} for name, row in self.rows.items()
        }
        return Sample({b: y for b, y in self.baseline.items() if b in stage}, rows)

    def compute_mean_variance(self, blocks: int) -> float:
        """Return the variance of a mean of differences, in units of one difference's variance."""
        return 1 / blocks + self.overlap


@dataclass(frozen=True)
class Judgement:
    """The verdict on a row.

    Attributes:
        interval: None where row and baseline have no block in common; of a copy of another row
            that row's.
        call: None for a row that equals the baseline or another row: it is no comparison.
        small: the whole interval lies inside ±δ, beside a better or worse.
        same_as: the baseline or the row that this one equals.
    """

    interval: Difference | None
    call: Call | None
    small: bool = False
    same_as: str | None = None


class ComparisonRule(ABC):
    """A rule of comparison: intervals of all rows of a family against one baseline.

    A family is the rows of one table, data set, base loss, backbone and metric. A rule keeps the
    chance of any interval that leaves out its true difference at 5 % over the family.
    """

    name: ClassVar[str]
    description: ClassVar[str]  # one sentence below each table

    @abstractmethod
    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return for each row how far its interval reaches below and above its mean difference.

        Rows have at least two blocks in common with the baseline. An infinite reach means that
        these blocks cannot bound the difference.
        """


def load_rule(name: str) -> ComparisonRule:
    """Return the rule of this name, of this package or of an installed one."""
    rule: ComparisonRule = load_kind("rules", name)()
    return rule


def judge(
    rule: ComparisonRule,
    sample: Sample,
    *,
    smallest: float,
    resolution: float = 0.0,
    lower_is_better: bool = False,
    baseline: str = "",
) -> dict[str, Judgement]:
    """Judge the rows of a family.

    Args:
        smallest: δ in the metric's unit, above 0.
        resolution: two rows are the same where no block differs by as much: 1/N of N test images.
        lower_is_better: direction of the metric. Intervals stay row − baseline.
        baseline: the name by which `same_as` calls it.

    Returns:
        A judgement for each row: "better" or "worse" where the interval leaves out 0, "no
        difference" where it lies inside ±δ, and "open" elsewhere.
    """
    copies = find_copies(sample, resolution, baseline)
    rows = {
        name: {b: y for b, y in row.items() if isfinite(y)}
        for name, row in sample.rows.items()
        if name not in copies
    }
    finite = {b: y for b, y in sample.baseline.items() if isfinite(y)}
    family = Sample(finite, rows, sample.first_stage, sample.overlap)
    counts = {name: len(family.list_common_blocks(name)) for name in rows}
    judged = {name: row for name, row in rows.items() if counts[name] > 1}
    inner = Sample(finite, judged, sample.first_stage, sample.overlap)
    reach = rule.compute_half_widths(inner) if judged else {}
    verdicts: dict[str, Judgement] = {}
    for name in sample.rows:
        if name in copies:
            twin = verdicts.get(copies[name])
            zero = Difference(0.0, None, None, len(sample.list_common_blocks(name)), "same")
            verdicts[name] = Judgement(twin.interval if twin else zero, None, same_as=copies[name])
            continue
        if not counts[name]:
            verdicts[name] = Judgement(None, "open")
            continue
        mean = float(family.compute_differences(name).mean())
        below, above = reach.get(name, (np.inf, np.inf))
        low = mean - below if np.isfinite(below) else None
        high = mean + above if np.isfinite(above) else None
        interval = Difference(mean, low, high, counts[name], rule.name)
        verdicts[name] = decide(interval, smallest, lower_is_better=lower_is_better)
    return verdicts


def decide(interval: Difference, smallest: float, *, lower_is_better: bool) -> Judgement:
    """Return the verdict that an interval gives: the only place where one is decided."""
    low = -np.inf if interval.low is None else interval.low
    high = np.inf if interval.high is None else interval.high
    inside = -smallest < low and high < smallest
    if low > 0 or high < 0:
        better = (low > 0) != lower_is_better
        return Judgement(interval, "better" if better else "worse", small=inside)
    return Judgement(interval, "no difference" if inside else "open")


def find_copies(sample: Sample, resolution: float, baseline: str = "") -> dict[str, str]:
    """Return row → the baseline or the earlier row that it equals at every common block.

    Two rows are equal where their largest absolute difference is below `resolution`, or 0.
    """
    copies: dict[str, str] = {}
    originals: dict[str, Blocks] = {baseline: sample.baseline}
    for name, row in sample.rows.items():
        same = [other for other, values in originals.items() if are_equal(row, values, resolution)]
        if same:
            copies[name] = same[0]
        else:
            originals[name] = row
    return copies


def count_comparisons(judgements: Sequence[Judgement]) -> int:
    """Count the comparisons of a family: its rows without copies and rows without an interval."""
    return sum(
        judgement.call is not None and judgement.interval is not None for judgement in judgements
    )
