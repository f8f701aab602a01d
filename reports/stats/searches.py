"""Judge rows by their means over K searches, with the scatter of the searches in each interval.

A rule bounds how the means over searches scatter between blocks (seeds or splits). It cannot know
that all blocks share the values which the K searches found: its half width h alone gives up to
100 % false verdicts. The half width that contains both is

    √(h² + g²)

with g the half width that the default rule gives the means over blocks of each search, as if
searches were blocks: it contains how much the row's difference to the baseline scatters between
searches. Its shared errors win degrees of freedom where searches are few.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np

from reports.kinds import DEFAULT_RULE
from reports.stats.blocks import Blocks, find_originals
from reports.stats.comparison_rule import ComparisonRule, Sample, load_rule


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
        gaps = {name: dict(enumerate(self.compute_means(name))) for name in sample.rows}
        zeros = dict.fromkeys(range(len(self.searches)), 0.0)
        by_search = replace(sample, baseline=zeros, rows=gaps, first_stage=None, planned=None)
        further = load_rule(DEFAULT_RULE).compute_half_widths(by_search)
        return {
            name: (
                float(np.hypot(below, further[name][0])),
                float(np.hypot(above, further[name][1])),
            )
            for name, (below, above) in self.rule.compute_half_widths(sample).items()
        }

    def compute_means(self, name: str) -> list[float]:
        """Return a row's mean difference to the baseline in each search."""
        return [float(search.compute_differences(name).mean()) for search in self.searches]

    def compute_sd(self, name: str) -> float:
        """Return the standard deviation of a row's mean difference between the searches."""
        return stdev(self.compute_means(name))


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
