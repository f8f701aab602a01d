"""Describe samples: means, standard deviations, intervals of the mean, and ranks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (ddof 1; None for n < 2) and number of values."""

    mean: float
    sd: float | None
    n: int


def keep_finite(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the values that are numbers, as float64."""
    array = np.asarray(values, dtype=np.float64)
    return array[np.isfinite(array)]


def summarize(values: Sequence[float]) -> Summary | None:
    """Return x̄ = Σx / n and sd = √(Σ(x − x̄)² / (n − 1)) of the finite values; None without any."""
    x = keep_finite(values)
    if not len(x):
        return None
    return Summary(float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None, len(x))


def pooled_sd(groups: Iterable[Sequence[float]]) -> tuple[float, int] | None:
    """Return (s_p, groups used), the scatter within groups: s_p = √(Σ(nᵢ − 1) sᵢ² / Σ(nᵢ − 1)).

    Values that are not finite are left out, then groups of fewer than two; None if nothing is left.
    """
    arrays = [x for x in map(keep_finite, groups) if len(x) > 1]
    if not arrays:
        return None
    squares = sum((len(x) - 1) * float(x.std(ddof=1)) ** 2 for x in arrays)
    return math.sqrt(squares / sum(len(x) - 1 for x in arrays)), len(arrays)


def t_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float] | None:
    """Return Student's interval of the mean, x̄ ± t_{(1+level)/2, n−1} · sd / √n; None for n < 2.

    In the values' unit; values that are not finite are left out. Exact for normal values.
    Source: Student, "The Probable Error of a Mean", Biometrika 6 (1908).
    """
    from scipy.stats import t

    summary = summarize(values)
    if summary is None or summary.sd is None:
        return None
    half = float(t.ppf((1 + level) / 2, summary.n - 1)) * summary.sd / math.sqrt(summary.n)
    return summary.mean - half, summary.mean + half


def half_width(values: Sequence[float]) -> float | None:
    """Return h = t_{0.975, n−1} · sd / √n, half of Student's interval; None for n < 2.

    Musgrave, Belongie and Lim, "A Metric Learning Reality Check" (ECCV 2020) print mean ± h over
    ten reproductions; their public code has the formula. The factor t is 2.262 at n = 10 and 4.303
    at n = 3, above the 1.96 of the normal distribution.
    """
    ends = t_interval(values)
    return None if ends is None else (ends[1] - ends[0]) / 2


NEMENYI = 0.05  # of Nemenyi's test


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return ρ = Pearson's correlation of the ranks of a and b, ties at their mean rank.

    None for fewer than three pairs, or if one side is constant. Source: Spearman, "The proof and
    measurement of association between two things", American Journal of Psychology 15 (1904).
    """
    from scipy.stats import spearmanr

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(spearmanr(a, b).statistic)


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks of k methods over N blocks, rank 1 being the best.

    ranks: one a method, in the order of the columns.
    p: of Friedman's test in Iman and Davenport's form, that all methods are alike.
    critical: mean ranks that are closer than this do not differ (Nemenyi, at 0.05).
    groups: positions in `order`, (first, last) of each largest run of methods that do not differ;
        runs of one method are left out.
    order: the columns in ascending order of mean rank.
    """

    ranks: tuple[float, ...]
    p: float
    critical: float
    groups: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    blocks: int


def rank_methods(
    values: Sequence[Sequence[float]], *, lower_is_better: bool = False
) -> MeanRanks | None:
    """Rank methods in each block, ties at their mean rank, and compare the mean ranks.

    χ² = 12N / (k(k+1)) · (Σ_j R_j² − k(k+1)²/4), F = (N−1)χ² / (N(k−1) − χ²) with k−1 and
    (k−1)(N−1) degrees of freedom; CD = q · √(k(k+1) / 6N), q being the quantile of the studentised
    range at k and infinitely many degrees of freedom, over √2. χ² is divided by the correction for
    ties 1 − Σ (t³ − t) / (N k (k² − 1)), t the sizes of groups of equal values in a block.

    Args:
        values: [N, k], one row per block (a data set), one column per method; all finite.

    Returns:
        None with fewer than two blocks or methods.

    Source: Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7 (2006),
    Section 3.2.2.
    """
    from scipy.stats import f, rankdata, studentized_range

    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        return None
    n, k = table.shape
    # mean ranks and Friedman's test
    mean = rankdata(table if lower_is_better else -table, axis=1).mean(axis=0)
    chi = 12 * n / (k * (k + 1)) * float((mean**2).sum() - k * (k + 1) ** 2 / 4)
    sizes = np.concatenate([np.unique(row, return_counts=True)[1] for row in table])
    ties = 1 - float((sizes**3 - sizes).sum()) / (n * k * (k**2 - 1))
    chi = chi / ties if ties > 0 else 0.0  # 0 if all methods tie in every block
    denominator = n * (k - 1) - chi
    p = 0.0  # F is infinite if all blocks rank the methods alike
    if denominator > 1e-9:
        p = float(f.sf((n - 1) * chi / denominator, k - 1, (k - 1) * (n - 1)))
    # Nemenyi's critical difference, and the largest groups whose ends are closer than that
    q = float(studentized_range.ppf(1 - NEMENYI, k, np.inf)) / math.sqrt(2)
    critical = q * math.sqrt(k * (k + 1) / (6 * n))
    order = np.argsort(mean, kind="stable").tolist()
    ascending = [float(mean[i]) for i in order]
    groups: list[tuple[int, int]] = []
    for first, low in enumerate(ascending):
        last = max(i for i in range(first, k) if ascending[i] - low < critical)
        if last > first and not (groups and groups[-1][1] >= last):
            groups.append((first, last))
    return MeanRanks(tuple(mean.tolist()), p, critical, tuple(groups), tuple(order), n)
