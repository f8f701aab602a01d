"""Dunnett's interval, never shorter than the row's own paired t interval."""

from collections.abc import Mapping, Sequence

import numpy as np

from reports.stats.blocks import compute_family_quantile, fit_shared_error
from reports.stats.comparison_rule import ComparisonRule, Sample


class DunnettAndT(ComparisonRule):
    """Give each row d̄ ± max(t s_d / √n, c s √(2 / n)).

    t is the quantile of n − 1 degrees of freedom and s_d the standard deviation of the row's own
    differences; s with ν degrees of freedom is the error of the blocks model over all distinct
    rows, and c Dunnett's quantile for m comparisons. The shared error wins degrees of freedom; the
    row's own t guards against a row whose runs scatter more than all others (without it a row with
    ten times the scatter gives 20 % false verdicts).

    References:
        Dunnett, JASA 50 (1955); Stein, Annals of Mathematical Statistics 16 (1945) for
        `first_stage`.
    """

    name = "dunnett_and_t"
    description = (
        "Interval: mean difference ± the larger of the row's own paired t interval and Dunnett's "
        "interval over the comparisons of the table, whose error all rows share (rows and seeds as "
        "blocks)."
    )

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above), of the wider interval: t or Dunnett."""
        from scipy import stats

        stage = sample.restrict_to_first_stage()  # its blocks estimate the errors
        shared = fit_shared_error([stage.baseline, *stage.rows.values()])
        blocks = [frozenset(sample.list_common_blocks(name)) for name in sample.rows]
        correlation = compute_least_correlation(blocks)
        reach = {}
        for name, common in zip(sample.rows, blocks, strict=True):
            stage_gaps = stage.compute_differences(name)
            half = np.inf
            if len(stage_gaps) > 1 and shared is not None:
                t = stats.t.ppf((1 + sample.level) / 2, len(stage_gaps) - 1)
                c = compute_family_quantile(
                    len(blocks), shared.df, sample.others, correlation, sample.level
                )
                own_half = float(t * stage_gaps.std(ddof=1) * np.sqrt(1 / len(common)))
                shared_half = float(c * shared.sd * np.sqrt(2 * (1 / len(common))))
                half = max(own_half, shared_half)
            reach[name] = (half, half)
        return reach


def compute_least_correlation(blocks: Sequence[frozenset[int]]) -> float:
    """Return the least correlation between mean differences of two rows to the common baseline.

    With S_i the blocks (seeds) that row i and the baseline both have, corr(d̄_i, d̄_j) =
    |S_i ∩ S_j| / (2 √(|S_i| |S_j|)), which is 1/2 if no run is missing.
    """
    pairs = [(a, b) for i, a in enumerate(blocks) for b in blocks[:i]]
    correlations = [len(a & b) / (2 * np.sqrt(len(a) * len(b))) for a, b in pairs]
    return float(min(correlations, default=0.5))
