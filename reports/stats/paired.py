"""Differences paired by seed: intervals, tests of them, Holm's correction, effect sizes.

Runs at one seed share their data order and initial weights, so differences between cells are taken
seed by seed. That is unbiased, and gains precision where seeds matter.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.stats.describe import keep_finite, t_interval

Floats = NDArray[np.float64]
EXACT_PAIRS = 15  # 2^15 sign patterns are enumerated, more are sampled
MANY_RUNS = 200  # of a side, above which normal distributions replace resampling
NORMAL = 1.96  # quantile of 97.5 %
ROUNDING = 1e-12
RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """A paired difference: mean over the n common seeds, and its interval.

    method: how the interval was computed, or why there is none ("n < 2: no interval").
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    method: str


@dataclass(frozen=True)
class Improvement:
    """P(A > B) and its bootstrap interval (None if a side has fewer than two runs)."""

    probability: float
    low: float | None
    high: float | None


def paired_differences(a: Mapping[int, float], b: Mapping[int, float]) -> Floats:
    """Return the finite a − b of {seed: value} at each common seed, in order of the seeds."""
    return keep_finite([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])


def paired_difference(
    a: Mapping[int, float], b: Mapping[int, float], *, level: float = 0.95
) -> Difference | None:
    """Return mean(a − b) with the paired-t interval d̄ ± t·s_d/√n; None without a common seed."""
    d = paired_differences(a, b)
    if not len(d):
        return None
    mean, ends = float(d.mean()), t_interval(list(d), level=level)
    if ends is None:
        return Difference(mean, None, None, len(d), "n < 2: no interval")
    return Difference(mean, *ends, len(d), "paired t")


def compute_chances(
    mean: float, error: float, df: int, smallest: float, *, lower_is_better: bool = False
) -> tuple[float, float, float] | None:
    """Return the chances that a true difference is worse than −δ, within ±δ, and better than δ.

    They are those of the t distribution with the difference's own standard error, which is its
    posterior under a flat prior (on the mean and the logarithm of the standard deviation). Unlike
    an interval they are not corrected for a family. None without an error or its degrees of
    freedom.

    Args:
        error: standard error of `mean`. df: its degrees of freedom. smallest: δ.

    References:
        Benavoli et al., "Time for a change: a tutorial for comparing multiple classifiers through
            Bayesian analysis", JMLR 18 (2017), §4.1, without its correlation of folds.
    """
    from scipy import special

    if df < 1 or not 0 < error < np.inf:
        return None
    below = float(special.stdtr(df, (-smallest - mean) / error))
    above = float(special.stdtr(df, (mean - smallest) / error))
    worse, better = (above, below) if lower_is_better else (below, above)
    return worse, 1 - below - above, better


def permutation_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of a paired sign-flip permutation test on the mean; None for n < 2.

    p = share of sign patterns s in {−1, 1}^n with |Σ s·d| ≥ |Σ d|: exact (all 2^n) up to n = 15,
    then 10,000 sampled patterns and the observed one; above 200 pairs the normal distribution of
    Σ s·d, whose variance is Σ d². Values that are not finite are left out. Source: Fisher, "The
    Design of Experiments" (1935), §21.
    """
    d = keep_finite(differences)
    n = len(d)
    if n < 2:
        return None
    if n > MANY_RUNS:
        return math.erfc(abs(float(d.sum())) / math.sqrt(2 * float(d @ d))) if d.any() else 1.0
    if n <= EXACT_PAIRS:
        signs = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    else:
        sampled = np.random.default_rng(0).choice([1.0, -1.0], size=(RESAMPLES, n))
        signs = np.vstack([np.ones((1, n)), sampled])
    observed = abs(d.sum())
    # Allow for rounding: sums of the same numbers in another order differ in the last bits.
    reached = np.abs(signs @ d) >= observed - ROUNDING * max(1.0, float(np.abs(d).sum()))
    return float(reached.mean())


def adjust_by_holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p of a family of m tests, adjusted by Holm to control the family-wise error.

    p̃₍ᵢ₎ = max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎), p in ascending order. None (no test) stays
    None and does not count in m. Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    ordered = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(ordered):
        running = max(running, min(1.0, (len(ordered) - rank) * p))
        adjusted[i] = running
    return adjusted


def cohens_dz(differences: Sequence[float]) -> float | None:
    """Return d_z = d̄ / sd(d), the mean paired difference in sds of the paired differences.

    Values that are not finite are left out. None for n < 2 or if all differences are alike up
    to rounding (no scatter to compare with). Biased away from zero at few pairs: not corrected.
    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), §2.3.
    """
    d = keep_finite(differences)
    if len(d) < 2 or np.ptp(d) <= ROUNDING * np.abs(d).max():
        return None
    return float(d.mean() / d.std(ddof=1))


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return δ = (#{a > b} − #{a < b}) / (n_a n_b), over all pairs of a run of A and one of B.

    In [−1, 1]; not paired by seed. Values that are not finite are left out; None if either side has
    none. Source: Cliff, Psychological Bulletin 114 (1993).
    """
    x, y = keep_finite(a), keep_finite(b)
    if not len(x) or not len(y):
        return None
    return float(_sum_signs(x, y).sum() / (len(x) * len(y)))


def _sum_signs(x: Floats, y: Floats) -> NDArray[np.int64]:
    """Return Σ sign(x_i − y_j) over j, for each i."""
    ordered = np.sort(y)
    below = np.searchsorted(ordered, x, side="left")
    return np.asarray(below + np.searchsorted(ordered, x, side="right") - len(y))


def probability_of_improvement(a: Sequence[float], b: Sequence[float]) -> Improvement | None:
    """Return P(A > B), the chance that a run of A beats a run of B (ties: half); None without runs.

    P = (#{a > b} + ½ #{a = b}) / (n_a n_b) = (δ + 1) / 2 with Cliff's δ (Vargha and Delaney's Â₁₂),
    and a 95 % percentile interval of the stratified bootstrap: runs are drawn again within each
    side, independently. Runs are not paired by seed here.

    The interval is None if a side has fewer than two runs. At few runs it is too narrow, as all
    bootstrap intervals are. Above 200 runs of a side it is P ± 1.96 √(s²_a / n_a + s²_b / n_b),
    with the variances of the shares of pairs that each run of A, or of B, wins (DeLong et al.,
    Biometrics 44, 1988). Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice" (NeurIPS 2021), for a single task.
    """
    x, y = keep_finite(a), keep_finite(b)
    delta = cliffs_delta(a, b)
    if delta is None:
        return None
    chance = (delta + 1) / 2
    if min(len(x), len(y)) < 2:
        return Improvement(chance, None, None)
    if max(len(x), len(y)) > MANY_RUNS:
        shares = (_sum_signs(x, y) / len(y), _sum_signs(y, x) / len(x))
        error = math.sqrt(sum(float(np.var(s, ddof=1)) / len(s) for s in shares)) / 2
        return Improvement(chance, chance - NORMAL * error, chance + NORMAL * error)
    rows, columns = _draw_resample_counts(len(x), len(y))
    # Â₁₂ of each resample: the matrix of wins, weighted by how often each run was drawn.
    wins = (np.sign(x[:, None] - y[None, :]) + 1) / 2
    chances = np.einsum("rj,rj->r", rows @ wins, columns) / wins.size  # sums of halves: exact
    low, high = np.percentile(chances, [2.5, 97.5])
    return Improvement(chance, float(low), float(high))


@lru_cache(maxsize=4)  # the comparisons of a table have the same n and m
def _draw_resample_counts(n: int, m: int) -> tuple[Floats, Floats]:
    """Return how often each resample draws each run, [RESAMPLES, n] and [RESAMPLES, m]."""
    rng = np.random.default_rng(0)
    rows, columns = (
        rng.multinomial(k, np.full(k, 1 / k), size=RESAMPLES).astype(np.float64) for k in (n, m)
    )
    return rows, columns
