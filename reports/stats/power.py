"""The difference that a comparison can detect, and Stein's number of seeds."""

from collections.abc import Mapping, Sequence

import numpy as np

from reports.kinds import DEFAULT_RULE
from reports.stats.blocks import LEVEL, NODES, compute_family_quantile, dunnett_quantile
from reports.stats.rules.pooled_or_holm import MANY_BLOCKS

POWER = 0.8
Quantiles = Mapping[float, float]  # degrees of freedom → quantile


def compute_detectable_size(
    seeds: int, comparisons: int, *, cells: int | None = None, baselines: int = 1
) -> float | None:
    """Return the true difference that the default rule detects in 80 % of cases, in sds of a run.

    A row (`cells` is None) is detected if its intervals leave out 0, of which the rule has one from
    8 seeds on, Holm's first with n − 1 degrees of freedom, and three below: its own t, Dunnett's
    with m (n − 1), and Dunnett's over the pooled scatter. The two sides of a main effect (`cells`
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
        return _solve_size({df: dunnett_quantile(comparisons, df, 0.0)}, {}, seeds * cells / 2)
    rows = max(1, comparisons // baselines)  # with one baseline, whose errors they share
    own_level, shared_dfs = 1 - (1 - LEVEL) / comparisons, list[float]()
    if seeds < MANY_BLOCKS and rows > 1:
        own_level = LEVEL ** (rows / comparisons)
        shared_dfs = [rows * (seeds - 1), rows * (seeds - 1) / (1 + (rows - 1) / 4)]
    own: Quantiles = {seeds - 1: dunnett_quantile(1, seeds - 1, level=own_level)}
    shared = {df: compute_family_quantile(rows, df, comparisons - rows) for df in shared_dfs}
    return _solve_size(own, shared, seeds)


def _solve_size(own: Quantiles, shared: Quantiles, per_side: float) -> float:
    """Return the δ that all t tests detect in 80 % of cases, with `per_side` runs.

    A test rejects if z > q s with z ~ N(δ √(per_side / 2), 1) and s² ~ χ²_df / df. The tests have z
    in common; s of a row's own test and of the shared ones are taken as independent, and those of
    the shared ones as one.

    Args:
        own, shared: degrees of freedom → quantile q of the tests.
    """
    from scipy import optimize, stats

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    errors = stats.norm.ppf((nodes + 1) / 2)

    def compute_excess(shift: float) -> float:
        z = np.maximum(shift + errors, 0.0)
        chances = [
            [stats.chi2.cdf(df * (z / q) ** 2, df) for df, q in tests.items()]
            for tests in (own, shared)
            if tests
        ]
        joint = np.prod([np.min(each, axis=0) for each in chances], axis=0)
        return float(weights @ joint) / 2 - POWER

    most = max({**own, **shared}.values())
    shift = optimize.brentq(compute_excess, 0.0, 3 * most + 5)  # the root lies between
    return float(shift * np.sqrt(2 / per_side))


def choose_final_seeds(
    differences: Sequence[Sequence[float]], half_width: float, at_most: int, level: float = LEVEL
) -> int:
    """Return Stein's number of seeds n, with which each row's interval has t s / √n ≤ half_width.

    n is decided once, from a first stage of seeds. The final interval keeps the s and the degrees
    of freedom of the first stage (`Sample.first_stage`), so that it holds its level for any σ.

    Args:
        differences: for each row of a family, those to the baseline at the first stage's seeds.
        half_width: in the unit of the differences. at_most: the largest n. level: of intervals.

    References:
        Stein, "A two-sample test for a linear hypothesis whose power is independent of the
        variance", Annals of Mathematical Statistics 16 (1945).
    """
    from reports.stats.comparison_rule import Sample, load_rule

    # intervals of the first stage: differences are rows against a baseline of zeros, whose blocks
    # a rule cannot tell from those of any other baseline
    first = min(map(len, differences))
    zeros = dict.fromkeys(range(first), 0.0)
    rows = {str(i): dict(enumerate(row[:first])) for i, row in enumerate(differences)}
    reach = load_rule(DEFAULT_RULE).compute_half_widths(Sample(zeros, rows, level=level))
    widest = max(half for half, _ in reach.values())
    return int(min(at_most, max(first, np.ceil(first * (widest / half_width) ** 2))))
