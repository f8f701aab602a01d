"""The default rule: paired t with many blocks, a scatter that rows share with few."""

from collections.abc import Mapping

from reports.stats.blocks import compute_family_quantile, fit_shared_error
from reports.stats.comparison_rule import ComparisonRule, Sample
from reports.stats.rules.dunnett_and_t import DunnettAndT, compute_least_correlation
from reports.stats.rules.holm_t import HolmT

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

    def shares_error(self, sample: Sample) -> bool:
        """Return whether there are too few planned blocks for each row's own scatter."""
        return sample.count_planned_blocks() < MANY_BLOCKS

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above), chosen by the planned number of blocks."""
        from scipy import stats

        if not self.shares_error(sample):
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
