"""Effect sizes: how large a difference is beside the scatter of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.stats.describe import RESAMPLES, finite

Floats = NDArray[np.float64]
ROUNDING = 1e-12


@dataclass(frozen=True)
class Improvement:
    """P(A > B) and its bootstrap interval (None where a task has fewer than two runs of either).

    tasks: how many tasks it is the mean over; n: the smallest number of runs of either on any.
    """

    probability: float
    low: float | None
    high: float | None
    tasks: int
    n: int


def cohens_dz(differences: Sequence[float]) -> float | None:
    """d_z = d̄ / sd(d), the mean paired difference in its own standard deviations.

    Values that are not finite are left out. None for n < 2 or where all differences are alike up
    to rounding (no scatter to compare with). Biased away from zero at few pairs: not corrected.
    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), §2.3.
    """
    d = finite(differences)
    if len(d) < 2 or np.ptp(d) <= ROUNDING * np.abs(d).max():
        return None
    return float(d.mean() / d.std(ddof=1))


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float | None:
    """δ = (#{a > b} − #{a < b}) / (n_a n_b), over all pairs of a run of A and one of B.

    In [−1, 1]; not paired by seed. Values that are not finite are left out; None if either side has
    none. Source: Cliff, Psychological Bulletin 114 (1993).
    """
    x, y = finite(a), finite(b)
    if not len(x) or not len(y):
        return None
    return float(np.sign(x[:, None] - y[None, :]).mean())


def vargha_delaney_a(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Â₁₂ = (#{a > b} + ½ #{a = b}) / (n_a n_b) = (δ + 1) / 2; one half means no difference.

    In [0, 1]; not paired by seed. Values that are not finite are left out; None if either side has
    none. Source: Vargha and Delaney, J. Educational and Behavioral Statistics 25 (2000).
    """
    delta = cliffs_delta(a, b)
    return None if delta is None else (delta + 1) / 2


def probability_of_improvement(
    a: Mapping[str, Sequence[float]] | Sequence[float],
    b: Mapping[str, Sequence[float]] | Sequence[float],
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Improvement | None:
    """P(A > B): the chance that a run of A beats one of B, ties half, averaged over tasks.

    P = (1/T) Σ_t Â₁₂(a_t, b_t), with a percentile interval of the stratified bootstrap: runs are
    drawn again within each task and side, independently. Runs are not paired by seed here.

    Args:
        a, b: the runs of one task, or {task: runs}; tasks that either lacks, or has no finite value
            at, are left out. None if none is left.

    The interval is None where some task has fewer than two runs of a side, and too narrow at few
    runs, as any bootstrap's. Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of
    the Statistical Precipice" (NeurIPS 2021).
    """
    first = {k: finite(v) for k, v in (a.items() if isinstance(a, Mapping) else [("", a)])}
    second = {k: finite(v) for k, v in (b.items() if isinstance(b, Mapping) else [("", b)])}
    both = [
        (x, second[task])
        for task, x in first.items()
        if task in second and len(x) and len(second[task])
    ]
    if not both:
        return None
    chance = float(np.mean([vargha_delaney_a(list(x), list(y)) for x, y in both]))
    n = min(min(len(x), len(y)) for x, y in both)
    if n < 2:
        return Improvement(chance, None, None, len(both), n)
    drawn_runs = _drawn(tuple((len(x), len(y)) for x, y in both), seed, resamples)
    drawn = np.mean(
        [_resampled(x, y, *of) for (x, y), of in zip(both, drawn_runs, strict=True)], axis=0
    )
    low, high = np.percentile(drawn, [50 * (1 - level), 50 * (1 + level)])
    return Improvement(chance, float(low), float(high), len(both), n)


@lru_cache(maxsize=4)
def _drawn(
    sizes: tuple[tuple[int, int], ...], seed: int, resamples: int
) -> tuple[tuple[Floats, Floats], ...]:
    """Of each task how often each run of either side is drawn, [resamples, runs]: the same for all
    comparisons of as many runs, of which a table has hundreds."""
    rng = np.random.default_rng(seed)
    return tuple(
        (
            rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64),
            rng.multinomial(m, np.full(m, 1 / m), size=resamples).astype(np.float64),
        )
        for n, m in sizes
    )


def _resampled(x: Floats, y: Floats, rows: Floats, columns: Floats) -> Floats:
    """Â₁₂ of each resample: the matrix of wins, seen through drawn rows and columns."""
    wins = (np.sign(x[:, None] - y[None, :]) + 1) / 2
    chances: Floats = np.einsum("rj,rj->r", rows @ wins, columns)  # of halves: exact
    return chances / wins.size
