"""The difference that a comparison can detect, and Stein's number of seeds."""

from collections.abc import Sequence

import numpy as np

from reports.stats.blocks import compute_family_quantile, dunnett_quantile

POWER = 0.8


def compute_detectable_size(
    seeds: int, comparisons: int, *, cells: int | None = None, baselines: int = 1
) -> float | None:
    """Return the true difference that the default rule detects in 80 % of cases, in sds of a run.

    A row (`cells` is None) is detected if two intervals leave out 0: its own t interval with n − 1
    degrees of freedom, and Dunnett's with m (n − 1). The larger δ of both is returned, where
    P(T_ν(δ √(n/2)) > quantile) = 0.8 with T noncentral t. The two sides of a main effect (`cells`
    given) have n·cells/2 runs each, and no baseline in common (correlation 0).

    Args:
        seeds: n, the seeds of both rows.
        comparisons: m, the number of comparisons in the family.
        cells: the cells of a two-level factorial that is judged by its main effects.
        baselines: number of baselines over which the comparisons of a matrix are divided.

    Returns:
        None for fewer than two seeds.
    """
    if seeds < 2:
        return None
    if cells is not None:
        df = (cells - 1) * (seeds - 1)
        return _solve_size(dunnett_quantile(comparisons, df, 0.0), df, seeds * cells / 2)
    own = _solve_size(dunnett_quantile(1, seeds - 1), seeds - 1, seeds)
    rows = max(1, comparisons // baselines)  # with one baseline, whose errors they share
    df = rows * (seeds - 1)
    quantile = compute_family_quantile(rows, df, comparisons - rows)
    return max(own, _solve_size(quantile, df, seeds))


def _solve_size(quantile: float, df: int, per_side: float) -> float:
    """Return the δ detected with `per_side` runs: P(T_df(δ √(per_side / 2)) > quantile) = 0.8."""
    from scipy import optimize, stats

    def compute_excess(shift: float) -> float:
        return float(stats.nct.sf(quantile, df, shift)) - POWER

    shift = optimize.brentq(compute_excess, 0.0, 3 * quantile + 5)  # the root lies between
    return float(shift * np.sqrt(2 / per_side))


def choose_final_seeds(
    differences: Sequence[Sequence[float]], half_width: float, at_most: int
) -> int:
    """Return Stein's number of seeds n, with which each row's interval has t s / √n ≤ half_width.

    n is decided once, from a first stage of seeds. The final interval keeps the s and the degrees
    of freedom of the first stage (`Sample.first_stage`), so that it holds its level for any σ.

    Args:
        differences: for each row of a family, those to the baseline at the first stage's seeds.
        half_width: in the unit of the differences. at_most: the largest n.

    References:
        Stein, "A two-sample test for a linear hypothesis whose power is independent of the
        variance", Annals of Mathematical Statistics 16 (1945).
    """
    from reports.stats.comparison_rule import Sample, load_rule

    # intervals of the first stage: differences are rows against a baseline of zeros
    first = min(map(len, differences))
    zeros = dict.fromkeys(range(first), 0.0)
    rows = {str(i): dict(enumerate(row[:first])) for i, row in enumerate(differences)}
    reach = load_rule("holm_t").compute_half_widths(Sample(zeros, rows))
    widest = max(half for half, _ in reach.values())
    return int(min(at_most, max(first, np.ceil(first * (widest / half_width) ** 2))))
