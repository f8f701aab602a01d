"""Rules of comparison: paired t with Holm's correction, a shared error, and the default of both."""

from collections.abc import Mapping, Sequence

import numpy as np

from reports.stats.blocks import LEVEL, compute_family_quantile, fit_shared_error
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


MANY_BLOCKS = 8  # planned, from which each row's own scatter is known well enough
WILD_BASELINE = 1.1  # s_p / (s √2) above which the baseline scatters more than the rows
WILD_ROW = 0.85  # quantile of s_i² / s_p² above which a row scatters more than the others


class PooledOrHolm(ComparisonRule):
    """Use `holm_t` from 8 planned blocks on, and an interval that shares scatter below.

    `holm_t` is exact for any standard deviations of rows and baseline, but takes many blocks. Below
    eight, a row's interval is the widest of three:

    - that of `dunnett_and_t`, whose s does not see the baseline's scatter;
    - c s_p / √n with s_p² the mean variance of all differences to the baseline, which has
      ν = (n − 1) m / (1 + (m − 1) / 4) degrees of freedom, since differences to one baseline
      correlate by 1/2, and c Dunnett's quantile at ν. If s_p > 1.1 s √2, or n = 2, the baseline may
      scatter so much that all differences are nearly the same one: c is then at least t;
    - t s_i / √n at Šidák's level over k, if s_i² / s_p² is above its 85 % point for alike rows in k
      rows: only their own t guards these.

    Comparisons with other baselines (`Sample.others`) raise the level of both t in proportion.
    """

    name = "pooled_or_holm"
    description = (
        "Interval, with eight planned seeds (or splits) or more: paired t, at the level that "
        "Holm's correction over the comparisons of the table gives the row. With fewer: the widest "
        "of the row's own paired t, Dunnett's over the error that rows share, and Dunnett's over "
        "the pooled scatter of all differences to the baseline."
    )

    def has_shared_error(self, sample: Sample) -> bool:
        """Return whether there are too few planned blocks for each row's own scatter."""
        return sample.count_planned_blocks() < MANY_BLOCKS

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above), chosen by the planned number of blocks."""
        from scipy import stats

        if not self.has_shared_error(sample):
            return HolmT().compute_half_widths(sample)
        reach = dict(DunnettAndT().compute_half_widths(sample))
        stage = sample.restrict_to_first_stage()  # its blocks estimate the errors
        gaps = {name: stage.compute_differences(name) for name in sample.rows}
        variances = {name: float(gap.var(ddof=1)) for name, gap in gaps.items() if len(gap) > 1}
        shared = fit_shared_error([stage.baseline, *stage.rows.values()])
        if shared is None or not variances:
            return reach
        # pooled variance of the differences, and Dunnett's quantile for it
        dfs = {name: len(gaps[name]) - 1 for name in variances}
        pooled = sum(dfs[name] * variances[name] for name in dfs) / sum(dfs.values())
        blocks = [frozenset(sample.list_common_blocks(name)) for name in sample.rows]
        c = compute_family_quantile(
            len(blocks),
            sum(dfs.values()) / (1 + (len(dfs) - 1) / 4),
            sample.others,
            compute_least_correlation(blocks),
            sample.level,
        )
        # t of all rows together, and of those rows that scatter more than others
        level, most = (
            sample.level ** (len(blocks) / (len(blocks) + sample.others)),
            max(dfs.values()),
        )
        if most == 1 or pooled > 2 * (WILD_BASELINE * shared.sd) ** 2:
            c = max(c, float(stats.t.ppf((1 + level) / 2, most)))
        wild = [
            k for k, df in dfs.items() if variances[k] * df > pooled * stats.chi2.ppf(WILD_ROW, df)
        ]
        level **= 1 / max(1, len(wild))
        for name, df in dfs.items():
            own = float(stats.t.ppf((1 + level) / 2, df) * variances[name] ** 0.5)
            half = max(own, c * pooled**0.5) / len(sample.list_common_blocks(name)) ** 0.5
            reach[name] = (max(half, reach[name][0]),) * 2
        return reach
