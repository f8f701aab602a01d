"""Statistics of a table: means over seeds, differences paired by seed, tests with correction.

All functions are pure; random ones take a seed. Runs at one seed share their data order and
initial draws, so that differences between cells are taken seed by seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

RESAMPLES = 10_000
EXACT_PAIRS = 15  # 2^15 sign patterns are enumerated, more are sampled


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (ddof 1; None for n < 2) and number of values."""

    mean: float
    sd: float | None
    n: int


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


def finite(values: Sequence[float]) -> NDArray[np.float64]:
    """The values that are numbers, as float64."""
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def summary(values: Sequence[float]) -> Summary | None:
    """Mean ± sd over what is finite; None if nothing is."""
    x = finite(values)
    if not len(x):
        return None
    return Summary(float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None, len(x))


def t_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float] | None:
    """Student's interval of the mean, x̄ ± t_{(1+level)/2, n−1} · sd / √n; None for n < 2.

    NaN and infinite values are left out. Student (1908): exact for normal values.
    """
    x = finite(values)
    n = len(x)
    if n < 2:
        return None
    mean = float(x.mean())
    quantile = float(scipy_stats.t.ppf((1 + level) / 2, n - 1))
    half = quantile * float(x.std(ddof=1)) / math.sqrt(n)
    return mean - half, mean + half


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean; None for n < 2."""
    x = finite(values)
    if len(x) < 2:
        return None
    draws = np.random.default_rng(seed).integers(0, len(x), size=(resamples, len(x)))
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(x[draws].mean(axis=1), [tail, 100 - tail])
    return float(low), float(high)


def pairs(a: Mapping[int, float], b: Mapping[int, float]) -> NDArray[np.float64]:
    """a − b at each seed that both have and where both are finite, in order of the seeds."""
    seeds = sorted(set(a) & set(b))
    return finite([a[seed] - b[seed] for seed in seeds])


def paired_difference(
    a: Mapping[int, float], b: Mapping[int, float], *, level: float = 0.95
) -> Difference | None:
    """mean(a − b) over common seeds with the paired-t interval d̄ ± t·s_d/√n; None without pairs.

    Args:
        a, b: {seed: value}.
    """
    d = pairs(a, b)
    n = len(d)
    if not n:
        return None
    mean = float(d.mean())
    if n < 2:
        return Difference(mean, None, None, n, "n < 2: no interval")
    half = float(scipy_stats.t.ppf((1 + level) / 2, n - 1)) * float(d.std(ddof=1)) / math.sqrt(n)
    return Difference(mean, mean - half, mean + half, n, "paired t")


def permutation_p(differences: Sequence[float], *, seed: int = 0) -> float | None:
    """Two-sided p of a paired sign-flip permutation test on the mean; None for n < 2.

    Exact (all 2^n sign patterns) up to n = 15, then 10,000 sampled patterns with the observed one
    counted. The smallest p that n pairs can reach is 2 / 2^n.
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


def wilcoxon_p(differences: Sequence[float]) -> float | None:
    """Two-sided p of Wilcoxon's signed-rank test (SciPy's); None for n < 2 or all zero."""
    d = finite(differences)
    if len(d) < 2 or not np.any(d):
        return None
    return float(scipy_stats.wilcoxon(d).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment of a family; None (no test) stays None and does not count."""
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, i) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        adjusted[i] = running
    return adjusted
