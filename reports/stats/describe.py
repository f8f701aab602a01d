"""Mean, standard deviation and intervals of the mean."""

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
