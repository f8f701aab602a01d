"""How many pairs a difference of a given size needs to be seen."""

from __future__ import annotations

import math

from scipy import stats as scipy_stats

MOST = 10_000


def power(size: float, n: int, level: float = 0.05) -> float:
    """The chance that a two-sided paired t test of n pairs rejects at `level`.

    1 − β = P(|T| > t_{1−level/2, n−1}) with T noncentral t, n − 1 degrees of freedom and
    noncentrality |d_z|·√n. Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences"
    (1988), §2.3 and §12.2, in its exact form.

    Args:
        size: d_z, the true mean difference in standard deviations of the differences.
        n: pairs, two or more.
    """
    shift, edge = abs(size) * math.sqrt(n), float(scipy_stats.t.ppf(1 - level / 2, n - 1))
    above = scipy_stats.nct.sf(edge, n - 1, shift)
    below = scipy_stats.nct.cdf(-edge, n - 1, shift)
    # Far out in its tails SciPy's noncentral t is NaN; there the one is certain, the other not.
    if math.isnan(above):
        return 1.0 if shift > edge else 0.0
    return float(above + (0.0 if math.isnan(below) else below))


def pairs_for_power(size: float, level: float = 0.05, wanted: float = 0.8) -> int | None:
    """The least n at which `power` reaches `wanted`; None for no difference, or above 10,000.

    The size that is put in is an estimate itself: from few pairs the answer is a guide.
    """
    if size == 0 or power(size, MOST, level) < wanted:
        return None
    low, high = 1, 2  # power grows with n: double, then halve
    while power(size, high, level) < wanted:
        low, high = high, min(2 * high, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        if power(size, middle, level) < wanted:
            low = middle
        else:
            high = middle
    return high
