"""What a comparison will be able to see, and how many seeds an interval of a given length takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.stats.blocks import dunnett_quantile

POWER = 0.8


def compute_detectable_size(
    seeds: int, comparisons: int, *, cells: int | None = None
) -> float | None:
    """Return the true difference that the default rule tells with 80 %, in sd of one run.

    Of rows, both of the rule's intervals must leave out 0: t over n − 1 degrees of freedom, and
    Dunnett's c over m (n − 1). For each the size is δ with P(T_ν(δ √(n/2)) > quantile) = 0.8, T
    noncentral t; the larger of the two stands for both. Of main effects, the two sides have n
    cells / 2 runs each.

    Args:
        seeds: n that both rows have. comparisons: m of the family.
        cells: of a two-level factorial that is judged by its main effects.

    Returns:
        None for fewer than two seeds.
    """
    if seeds < 2 or comparisons < 1:
        return None
    if cells is not None:
        quantile, df = _take_quantile(comparisons, (cells - 1) * (seeds - 1), 0.0)
        return _solve_size(quantile, df, seeds * cells / 2)
    sides = ((1, seeds - 1), (comparisons, comparisons * (seeds - 1)))
    return max(_solve_size(*_take_quantile(m, df, 0.5), seeds) for m, df in sides)


def _take_quantile(m: int, df: int, correlation: float) -> tuple[float, int]:
    return dunnett_quantile(m, df, correlation), df


def _solve_size(quantile: float, df: int, per_side: float) -> float:
    """Return δ with P(T_df(δ √(per_side / 2)) > quantile) = 0.8."""
    from scipy import optimize, stats

    def find_excess(shift: float) -> float:
        return float(stats.nct.sf(quantile, df, shift)) - POWER

    shift = optimize.brentq(find_excess, 0.0, 3 * quantile + 5)
    return float(shift * np.sqrt(2 / per_side))


def choose_final_seeds(
    differences: Sequence[Sequence[float]], half_width: float, at_most: int
) -> int:
    """Return Stein's number of seeds: n with t s / √n ≤ half_width for each row, and at most a
    limit.

    Decided once, from the first stage; the interval then keeps that stage's s and degrees of
    freedom (`Sample.first_stage`), which holds its level whatever σ is.

    Args:
        differences: of each row to the baseline at the first stage's seeds, of one family.
        half_width: wanted, in the unit of the differences. at_most: never more seeds.

    References:
        Stein, "A two-sample test for a linear hypothesis whose power is independent of the
        variance", Annals of Mathematical Statistics 16 (1945).
    """
    from reports.stats.comparison_rule import Sample, load_rule

    first = min(map(len, differences))
    zeros = dict.fromkeys(range(first), 0.0)
    rows = {str(i): dict(enumerate(row[:first])) for i, row in enumerate(differences)}
    reach = load_rule("holm_t").compute_half_widths(Sample(zeros, rows))
    widest = max(half for half, _ in reach.values())
    return int(min(at_most, max(first, np.ceil(first * (widest / half_width) ** 2))))
