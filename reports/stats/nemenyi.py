"""Which of several methods differ over several data sets: Friedman's test and Nemenyi's.

Source: Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7 (2006),
Section 3.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as scipy_stats


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of k methods over N blocks, rank 1 being the best.

    ranks: one a method, in the order of the columns.
    p: of Friedman's test in Iman and Davenport's form, that all methods are alike.
    critical: mean ranks that are closer than this do not differ (Nemenyi, at `level`).
    groups: places of methods in ascending order of rank, (first, last) of each largest run that
        does not differ; runs of one method are left out.
    order: the columns in ascending order of mean rank, to which `groups` refer.
    """

    ranks: tuple[float, ...]
    p: float
    critical: float
    groups: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    blocks: int
    level: float


def ranking(
    values: Sequence[Sequence[float]], *, lower_is_better: bool = False, level: float = 0.05
) -> Ranking | None:
    """Rank methods in each block, ties at their mean rank, and compare the mean ranks.

    χ² = 12N / (k(k+1)) · (Σ_j R_j² − k(k+1)²/4), F = (N−1)χ² / (N(k−1) − χ²) with k−1 and
    (k−1)(N−1) degrees of freedom; CD = q · √(k(k+1) / 6N), q being the quantile of the studentised
    range at k and infinitely many degrees of freedom, over √2. χ² is Demšar's, without a
    correction for ties.

    Args:
        values: [N, k], a row a block (a data set), a column a method; all finite.

    Returns:
        None with fewer than two blocks or methods.

    Raises:
        ValueError: the rows differ in length, or a value is not finite.
    """
    if len({len(row) for row in values}) > 1:
        raise ValueError("found blocks with different numbers of methods; expected all in each")
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        return None
    if not np.isfinite(table).all():
        raise ValueError("found a value that is not finite; leave its block out")
    n, k = table.shape
    ranks = scipy_stats.rankdata(table if lower_is_better else -table, axis=1)
    mean = ranks.mean(axis=0)
    chi = 12 * n / (k * (k + 1)) * float((mean**2).sum() - k * (k + 1) ** 2 / 4)
    left = n * (k - 1) - chi
    # All blocks rank alike: F is infinite.
    p = (
        float(scipy_stats.f.sf((n - 1) * chi / left, k - 1, (k - 1) * (n - 1)))
        if left > 1e-9
        else 0
    )
    q = float(scipy_stats.studentized_range.ppf(1 - level, k, np.inf)) / math.sqrt(2)
    critical = q * math.sqrt(k * (k + 1) / (6 * n))
    order = tuple(int(i) for i in np.argsort(mean, kind="stable"))
    groups = _groups([float(mean[i]) for i in order], critical)
    return Ranking(tuple(map(float, mean)), p, critical, groups, order, n, level)


def _groups(ascending: Sequence[float], critical: float) -> tuple[tuple[int, int], ...]:
    """The largest runs of neighbours whose ends are less than `critical` apart."""
    runs: list[tuple[int, int]] = []
    for first, low in enumerate(ascending):
        last = max(i for i, high in enumerate(ascending) if i >= first and high - low < critical)
        if last > first and not (runs and runs[-1][1] >= last):
            runs.append((first, last))
    return tuple(runs)
