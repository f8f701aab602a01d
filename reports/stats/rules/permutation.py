"""Paired sign-flip permutation tests with Holm's correction, inverted into intervals."""

from collections.abc import Mapping

import numpy as np

from reports.stats.comparison_rule import ComparisonRule, Sample
from reports.stats.paired import permutation_p
from reports.stats.rules.holm_t import assign_holm_levels

ENUMERATED = 15  # blocks whose subsets are all formed; of more, as many subsets are drawn
DRAWN = 2**ENUMERATED


class Permutation(ComparisonRule):
    """Give each row the differences that its sign-flip test does not reject, at Holm's level.

    The means of all 2ⁿ − 1 subsets of the differences divide the line into 2ⁿ parts of equal
    probability for the centre of a symmetric distribution, so the interval from the k-th smallest
    to the k-th largest of them covers it with 1 − 2k / 2ⁿ. Few blocks give no interval: 5 allow a
    level of 0.0625 at best. `first_stage` is not taken into account: no theory of this test has
    it.

    References: Fisher, "The Design of Experiments" (1935), §21; Hartigan, "Using subsample values
        as typical values", JASA 64 (1969).
    """

    name = "permutation"
    description = (
        "Interval: the differences that a paired sign-flip permutation test does not reject, at "
        "the level that Holm's correction over the comparisons of the table gives the row."
    )

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return how far each row's interval reaches (below, above); infinite for few blocks."""
        gaps = {name: sample.compute_differences(name) for name in sample.rows}
        # permutation_p returns None with fewer than two blocks
        p_values = {name: permutation_p(list(values)) or 1.0 for name, values in gaps.items()}
        levels = assign_holm_levels(p_values, sample.others)
        reach = {}
        for name, values in gaps.items():
            means = np.sort(_compute_subset_means(values))
            k = int(levels[name] * (len(means) + 1) / 2 + 1e-9)  # means outside, on each side
            ends = (means[k - 1], means[-k]) if k else (-np.inf, np.inf)
            reach[name] = (float(values.mean() - ends[0]), float(ends[1] - values.mean()))
        return reach


def _compute_subset_means(values: np.ndarray) -> np.ndarray:
    """Return the means of all subsets but the empty one, or of random subsets of many values."""
    n = len(values)
    if n <= ENUMERATED:
        members = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1  # the bits of 1, 2, …, 2ⁿ − 1
    else:
        members = np.random.default_rng(0).integers(0, 2, size=(DRAWN - 1, n))  # like 2ⁿ − 1
        members = members[members.any(axis=1)]
    return np.asarray(members @ values / members.sum(axis=1))
