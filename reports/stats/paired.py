"""Differences paired by seed, tests of them, and Holm's correction.

Runs at one seed share their data order and initial draws, so that differences between cells are
taken seed by seed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from reports.stats.describe import RESAMPLES, finite, t_interval

LEVEL = 0.05  # of every verdict
EXACT_PAIRS = 15  # 2^15 sign patterns are enumerated, more are sampled


@dataclass(frozen=True)
class Difference:
    """A paired difference: mean over the n seeds both have, and an interval, or why none.

    method: "paired t", or what is missing ("n < 2: no interval").
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    method: str


def pairs(a: Mapping[int, float], b: Mapping[int, float]) -> NDArray[np.float64]:
    """a − b at each seed that both have and where both are finite, in order of the seeds."""
    seeds = sorted(set(a) & set(b))
    return finite([a[seed] - b[seed] for seed in seeds])


def paired_difference(
    a: Mapping[int, float], b: Mapping[int, float], *, level: float = 0.95
) -> Difference | None:
    """mean(a − b) over common seeds with the paired-t interval d̄ ± t·s_d/√n; None without pairs.

    Args:
        a, b: {seed: value}; a seed that one of them lacks, or has no finite value at, is left out.
    """
    d = pairs(a, b)
    n = len(d)
    if not n:
        return None
    mean = float(d.mean())
    ends = t_interval(list(d), level=level)
    if ends is None:
        return Difference(mean, None, None, n, "n < 2: no interval")
    return Difference(mean, *ends, n, "paired t")


def permutation_p(differences: Sequence[float], *, seed: int = 0) -> float | None:
    """Two-sided p of a paired sign-flip permutation test on the mean; None for n < 2.

    p = share of sign patterns s in {−1, 1}^n with |Σ s·d| ≥ |Σ d|: exact (all 2^n) up to n = 15,
    then 10,000 sampled patterns with the observed one counted. Values that are not finite are left
    out. Source: Fisher, "The Design of Experiments" (1935), §21.
    """
    d = finite(differences)
    n = len(d)
    if n < 2:
        return None
    if n <= EXACT_PAIRS:
        signs = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    else:
        drawn = np.random.default_rng(seed).choice([1.0, -1.0], size=(RESAMPLES, n))
        signs = np.vstack([np.ones((1, n)), drawn])
    observed = abs(d.sum())
    # Sums of the same numbers in another order differ in the last bits.
    reached = np.abs(signs @ d) >= observed - 1e-12 * max(1.0, float(np.abs(d).sum()))
    return float(reached.mean())


def least_p(n: int) -> float | None:
    """2 / 2^n: the least p that n pairs can reach in either exact paired test; None for n < 2.

    All differences of one sign: only that pattern and its mirror reach the observed sum.
    """
    return None if n < 2 else 2.0 ** (1 - n)


def wilcoxon_p(differences: Sequence[float]) -> float | None:
    """Two-sided p of Wilcoxon's signed-rank test, SciPy's: exact for few values without ties.

    Zero differences are left out before ranking (Wilcoxon's own way), and so are values that are
    not finite; None for n < 2 or where all are zero. Source: Wilcoxon, Biometrics Bulletin 1
    (1945).
    """
    d = finite(differences)
    if len(d) < 2 or not np.any(d):
        return None
    ranks = scipy_stats.rankdata(np.abs(d)) * np.sign(d)
    return _wilcoxon_of(tuple(ranks.tolist()))


@lru_cache(maxsize=10_000)
def _wilcoxon_of(signed_ranks: tuple[float, ...]) -> float:
    """The test sees nothing but these, and few pairs have few of them."""
    return float(scipy_stats.wilcoxon(signed_ranks).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment of a family of m tests: controls the family-wise error.

    p̃₍ᵢ₎ = max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎), p in ascending order. None (no test) stays
    None and does not count in m. Source: Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        adjusted[i] = running
    return adjusted
