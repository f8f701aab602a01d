"""The rule by which a table's rows are judged against their baseline.

A rule gives each row one interval; the verdict follows from that interval and δ, the smallest
effect of interest, so that no page can print an interval that its verdict contradicts. A spec names
the rule (`rule: holm_t`); `reports/kinds.py` lists those of this package and of others.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np

from reports.kinds import RULES
from reports.stats.blocks import LEVEL, Blocks, find_originals
from reports.stats.paired import Difference

LEAST_EQUAL = 2  # blocks: by a single one, a row could take over another row's interval
LONG = 1.5  # times a row's own interval, from which a report names the rows that lengthen it
Call = Literal["better", "worse", "no difference", "open"]


@dataclass(frozen=True)
class Sample:
    """The values that a rule compares: distinct rows, and the baseline.

    Attributes:
        baseline: block → finite value. A block is a seed, or a split averaged over its seeds.
        rows: name → the same, a row for each comparison.
        first_stage: the blocks that decided how many there are, if precision was asked for.
            Standard deviations and degrees of freedom then come from these alone (Stein).
        others: number of comparisons with other baselines that belong to the same family.
        planned: number of blocks that the table was planned with. Default: the most of any row.
        level: 1 − the chance of any false interval of the family, which each rule keeps.
    """

    baseline: Blocks
    rows: Mapping[str, Blocks]
    first_stage: Collection[int] | None = None
    others: int = 0
    planned: int | None = None
    level: float = LEVEL

    def count_planned_blocks(self) -> int:
        """Return the number of blocks that was fixed before any result."""
        if self.first_stage is not None:
            return len(self.first_stage)
        return self.planned or max(map(len, (self.baseline, *self.rows.values())))

    def list_common_blocks(self, name: str) -> list[int]:
        """Return the blocks that a row and the baseline both have."""
        return sorted(self.baseline.keys() & self.rows[name].keys())

    def compute_differences(self, name: str) -> np.ndarray:
        """Return row − baseline at each common block."""
        row = self.rows[name]
        return np.array([row[b] - self.baseline[b] for b in self.list_common_blocks(name)])

    def restrict_to_first_stage(self) -> "Sample":
        """Return the sample's blocks of the first stage, or the sample if it has no first stage."""
        if self.first_stage is None:
            return self
        stage = set(self.first_stage)
        baseline = {b: y for b, y in self.baseline.items() if b in stage}
        rows = {k: {b: y for b, y in row.items() if b in stage} for k, row in self.rows.items()}
        return replace(self, baseline=baseline, rows=rows, first_stage=None)


@dataclass(frozen=True)
class Judgement:
    """The verdict on a row.

    Attributes:
        interval: None if row and baseline have no block in common; of a copy of another row, that
            row's.
        call: None for a row that equals the baseline or another row: it is no comparison.
        small: the whole interval lies inside ±δ, beside a better or worse.
        same_as: the baseline or the row that this one equals.
        own: half of the row's own t interval, if the scatter of other rows makes `interval` more
            than 1.5 times as long.
        lengthened_by: the rows, at most half of all, without which the pooled scatter would be 1.5
            times as small; empty if there are none such.
    """

    interval: Difference | None
    call: Call | None
    small: bool = False
    same_as: str | None = None
    own: float | None = None
    lengthened_by: tuple[str, ...] = ()


class ComparisonRule(ABC):
    """A rule of comparison: intervals of all rows of a family against one baseline.

    A family is the rows of one table, data set, base loss, backbone and metric, or all rows of a
    table with a matrix. A rule keeps the chance of any interval that leaves out its true difference
    at 1 − `Sample.level` (5 %) over the family.
    """

    name: ClassVar[str]
    description: ClassVar[str]  # one sentence below each table

    @abstractmethod
    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return for each row how far its interval reaches below and above its mean difference.

        Rows have at least two blocks in common with the baseline. An infinite reach means that
        these blocks cannot bound the difference.
        """

    def has_shared_error(self, sample: Sample) -> bool:
        """Return whether the scatter of one row lengthens the intervals of others."""
        return False


def load_rule(name: str) -> ComparisonRule:
    """Return the rule of this name, of this package or of an installed one."""
    rule: ComparisonRule = RULES[name]()
    return rule


def judge(
    rule: ComparisonRule,
    sample: Sample,
    *,
    smallest: float,
    resolution: float = 0.0,
    lower_is_better: bool = False,
    baseline: str = "",
    originals: Mapping[str, str] | None = None,
) -> dict[str, Judgement]:
    """Judge each row of a table against their common baseline, by the rule's intervals.

    Args:
        smallest: δ in the metric's unit, above 0.
        resolution: rows with the same blocks whose values differ by less at each are copies.
        lower_is_better: direction of the metric. Intervals stay row − baseline.
        baseline: name of the baseline, for `same_as`.
        originals: the row or baseline that each of them equals, or itself. Default: found from
            `sample`.

    Returns:
        A judgement for each row: "better" or "worse" if the interval leaves out 0, "no
        difference" if it lies inside ±δ, else "open"; None for a copy, which has `same_as`.
    """
    # rows that copy the baseline or another row are no comparisons
    if originals is None:
        all_rows = {baseline: sample.baseline, **sample.rows}
        originals = find_originals(all_rows, resolution, LEAST_EQUAL)
    copies = {name: original for name, original in originals.items() if name != original}
    # intervals of the other rows, each of which needs at least two blocks
    gaps = {name: sample.compute_differences(name) for name in sample.rows if name not in copies}
    bounded = {name: sample.rows[name] for name in gaps if len(gaps[name]) > 1}
    judged = replace(sample, rows=bounded)
    reach = _compute_reach(rule, judged) if bounded else {}
    judgements: dict[str, Judgement] = {}
    for name in sample.rows:
        if name in copies:
            original = judgements.get(copies[name])  # None if the row copies the baseline
            differences = sample.compute_differences(name)
            mean = float(differences.mean()) if len(differences) else 0.0
            alone = Difference(mean, None, None, len(differences), "same")
            interval = original.interval if original else alone
            judgements[name] = Judgement(interval, None, same_as=copies[name])
        elif not len(gaps[name]):
            judgements[name] = Judgement(None, "open")
        else:
            mean = float(gaps[name].mean())
            below, above = reach.get(name, (inf, inf))
            low, high = (end if isfinite(end) else None for end in (mean - below, mean + above))
            interval = Difference(mean, low, high, len(gaps[name]), rule.name)
            judgement = decide(interval, smallest, lower_is_better=lower_is_better)
            shares = (
                isfinite(below) and sample.first_stage is None and rule.has_shared_error(judged)
            )
            own, rows = _explain_length(judged, name, below) if shares else (None, ())
            judgements[name] = replace(judgement, own=own, lengthened_by=rows)
    return judgements


def join_intervals(a: Difference, b: Difference) -> Difference:
    """Return the first difference with the interval that contains both; unbounded if one is."""
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return replace(a, low=low, high=high)


def _compute_reach(rule: ComparisonRule, sample: Sample) -> Mapping[str, tuple[float, float]]:
    """Return each row's half width; after a first stage the larger of Stein's and the ordinary one.

    Stein's has the standard deviation of the first stage alone, which five blocks without a
    collapse make too short.
    """
    reach = rule.compute_half_widths(sample)
    if sample.first_stage is None:
        return reach
    ordinary = rule.compute_half_widths(replace(sample, first_stage=None))
    return {
        name: (max(ends[0], ordinary[name][0]), max(ends[1], ordinary[name][1]))
        for name, ends in reach.items()
    }


def _explain_length(sample: Sample, name: str, half: float) -> tuple[float | None, tuple[str, ...]]:
    """Return `Judgement.own` and `lengthened_by` for a row whose interval has a half width."""
    from scipy import stats

    variances = {k: float(sample.compute_differences(k).var(ddof=1)) for k in sample.rows}
    n = len(sample.list_common_blocks(name))
    own = float(stats.t.ppf((1 + sample.level) / 2, n - 1)) * (variances[name] / n) ** 0.5
    pooled = fmean(variances.values())
    if half <= LONG * own or variances[name] >= pooled:
        return None, ()
    wide = tuple(k for k, variance in variances.items() if variance > pooled)
    rest = fmean(variances[k] for k in variances if k not in wide)
    is_few = 2 * len(wide) <= len(variances) and pooled > LONG**2 * rest
    return own, wide if is_few else ()


def decide(interval: Difference, smallest: float, *, lower_is_better: bool) -> Judgement:
    """Return the verdict that an interval gives; no other function decides a verdict."""
    low = -inf if interval.low is None else interval.low
    high = inf if interval.high is None else interval.high
    inside = -smallest < low and high < smallest
    if low > 0 or high < 0:
        better = (low > 0) != lower_is_better
        return Judgement(interval, "better" if better else "worse", small=inside)
    return Judgement(interval, "no difference" if inside else "open")
