"""The default rule: Dunnett's interval, never shorter than the row's own paired t interval."""

from collections.abc import Mapping, Sequence

import numpy as np

from reports.stats.blocks import LEVEL, dunnett_quantile, fit_shared_error
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
        from scipy import stats

        stage = sample.restrict_to_first_stage()
        shared = fit_shared_error([stage.baseline, *stage.rows.values()])
        blocks = [frozenset(sample.list_common_blocks(name)) for name in sample.rows]
        correlation = compute_least_correlation(blocks)
        reach = {}
        for name, common in zip(sample.rows, blocks, strict=True):
            stage_gaps = stage.compute_differences(name)
            half = np.inf
            if len(stage_gaps) > 1 and shared is not None:
                t = stats.t.ppf((1 + LEVEL) / 2, len(stage_gaps) - 1)
                c = dunnett_quantile(len(blocks), shared.df, correlation)
                half = max(
                    float(t * stage_gaps.std(ddof=1) * np.sqrt(1 / len(common))),
                    float(c * shared.sd * np.sqrt(2 * (1 / len(common)))),
                )
            reach[name] = (half, half)
        return reach


def compute_least_correlation(blocks: Sequence[frozenset[int]]) -> float:
    """Return the least correlation of two rows' mean differences to one baseline.

    Over the blocks S_i that row and baseline share, corr(d̄_i, d̄_j) = |S_i ∩ S_j| / (2 √(|S_i|
    |S_j|)): 1/2 if nothing is missing.
    """
    correlations = [
        len(a & b) / (2 * np.sqrt(len(a) * len(b)))
        for i, a in enumerate(blocks)
        for b in blocks[:i]
    ]
    return float(min(correlations, default=0.5))
