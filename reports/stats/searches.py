"""Judge rows by their means over K searches, with the scatter of the searches in each interval.

A rule bounds how the means over searches scatter between blocks (seeds or splits). It cannot know
that all blocks share the values which the K searches found: its half width h alone gives up to
100 % false verdicts. The half width that contains both is

    √(h² + max(t s_D, c s √2)² / K)

with s_D the standard deviation of a row's K differences to the baseline, each a mean over blocks,
and t the quantile of K − 1 degrees of freedom; s with (R − 1)(K − 1) degrees of freedom the error
of the model row + search over all R distinct rows, and c Dunnett's quantile for the table's
comparisons. As in `rules/dunnett_and_t.py`, the shared error wins degrees of freedom, and the row's
own t guards against a row whose searches scatter more than those of the others.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import numpy as np

from reports.stats.blocks import (
    Blocks,
    compute_family_quantile,
    find_originals,
    fit_shared_error,
)
from reports.stats.comparison_rule import ComparisonRule, Sample


class OverSearches(ComparisonRule):
    """Widen the intervals of a rule by the scatter of searches.

    Args:
        rule: the rule, which sees the means over searches.
        searches: the values of each search, at the blocks which all searches have.
    """

    def __init__(self, rule: ComparisonRule, searches: Sequence[Sample]) -> None:
        """Take the rule's name and description, since it gives one part of the intervals."""
        self.rule, self.searches = rule, searches
        self.name, self.description = rule.name, rule.description  # type: ignore[misc]

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above), of the rule and the searches together."""
        from scipy import stats

        count, names = len(self.searches), list(sample.rows)
        sides = [[search.baseline.values() for search in self.searches]]
        sides += [[search.rows[name].values() for search in self.searches] for name in names]
        shared = fit_shared_error([dict(enumerate(map(fmean, values))) for values in sides])
        assert shared is not None  # there are two rows and two searches or more
        t = float(stats.t.ppf((1 + sample.level) / 2, count - 1))
        c = compute_family_quantile(len(names), shared.df, sample.others, level=sample.level)
        least = c * shared.sd * 2**0.5
        reach = {}
        for name, ends in self.rule.compute_half_widths(sample).items():
            further = max(t * self.compute_sd(name), least) / count**0.5
            below, above = (float(np.hypot(end, further)) for end in ends)
            reach[name] = (below, above)
        return reach

    def compute_sd(self, name: str) -> float:
        """Return the standard deviation of a row's mean difference between the searches."""
        return stdev(float(search.compute_differences(name).mean()) for search in self.searches)


def find_originals_of(
    searches: Sequence[Sample], baseline: str, resolution: float
) -> dict[str, str]:
    """Map each row to the first row that equals it in every search, or to itself."""
    joined: dict[str, dict[int, float]] = {}
    for k, search in enumerate(searches):
        for name, values in {baseline: search.baseline, **search.rows}.items():
            keys = {(k << 32) + block: value for block, value in values.items()}
            joined.setdefault(name, {}).update(keys)
    return find_originals(joined, resolution)


def average_searches(searches: Sequence[Mapping[str, Blocks]]) -> dict[str, dict[int, float]]:
    """Return row → block → mean over the searches, at the blocks that all searches have."""
    averages = {}
    for name in searches[0]:
        rows = [search.get(name, {}) for search in searches]
        common = [block for block in rows[0] if all(block in row for row in rows)]
        averages[name] = {block: fmean(row[block] for row in rows) for block in common}
    return averages
