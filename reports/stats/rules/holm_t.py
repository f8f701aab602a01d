"""Paired t tests with Holm's correction, as intervals."""

from collections.abc import Mapping

import numpy as np

from reports.stats.blocks import LEVEL
from reports.stats.comparison_rule import ComparisonRule, Sample


def assign_holm_levels(
    p_values: Mapping[str, float], others: int = 0, level: float = LEVEL
) -> dict[str, float]:
    """Return each row's level, at which its interval leaves out 0 exactly if Holm rejects the row.

    With α = 1 − level and in ascending order of p, the rows i = 0, 1, … of m are tested at
    α / (m − i). The first row that is not rejected gives its level to all rows after it. `others`,
    further comparisons of the family, count in m as if none of them were rejected.
    """
    levels, alpha, final_count = {}, 1 - level, 0  # final_count: once a row is not rejected
    for i, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        count = final_count or len(p_values) + others - i
        levels[name] = alpha / count
        if not final_count and p > levels[name]:
            final_count = count
    return levels


class HolmT(ComparisonRule):
    """Give each row d̄ ± t s_d / √n, at the level that Holm's procedure gives it.

    References:
        Holm, Scandinavian Journal of Statistics 6 (1979).
    """

    name = "holm_t"
    description = (
        "Interval: paired t over seeds, at the level that Holm's correction over the comparisons "
        "of the table gives the row."
    )

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above): of paired t at the level Holm gives it."""
        from scipy import stats

        stage = sample.restrict_to_first_stage()  # its blocks estimate the errors
        errors, p_values = {}, {}
        for name in sample.rows:
            stage_gaps, gaps = stage.compute_differences(name), sample.compute_differences(name)
            df, error, p = len(stage_gaps) - 1, np.inf, 1.0
            if df > 0:
                error = float(stage_gaps.std(ddof=1) * np.sqrt(1 / len(gaps)))
                p = float(2 * stats.t.sf(abs(gaps.mean()) / error if error else np.inf, df))
            errors[name], p_values[name] = (df, error), p
        levels = assign_holm_levels(p_values, sample.others, sample.level)
        reach = {}
        for name, (df, error) in errors.items():
            half = float(stats.t.isf(levels[name] / 2, df) * error) if df > 0 else np.inf
            reach[name] = (half, half)
        return reach
