"""How far two measurements order the same things alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A coefficient in [−1, 1] over n pairs."""

    value: float
    n: int


def spearman(a: Sequence[float], b: Sequence[float]) -> Correlation | None:
    """ρ = Pearson's correlation of the ranks of a and b, ties at their mean rank.

    Pairs of which a value is not finite are left out. None for fewer than three pairs, or where
    one side is constant. Source: Spearman, "The proof and measurement of association between two
    things", American Journal of Psychology 15 (1904).

    Raises:
        ValueError: a and b differ in length.
    """
    return _of_pairs(a, b, lambda x, y: scipy_stats.spearmanr(x, y).statistic)


def kendall(a: Sequence[float], b: Sequence[float]) -> Correlation | None:
    """τ_b = (P − Q) / √((P + Q + T)(P + Q + U)): P pairs of pairs that both sides order alike, Q
    those that they order against each other, T and U ties in a or b alone.

    What is left out, None and errors as in `spearman`. Source: Kendall, "The treatment of ties in
    ranking problems", Biometrika 33 (1945).
    """
    return _of_pairs(a, b, lambda x, y: scipy_stats.kendalltau(x, y).statistic)


def _of_pairs(
    a: Sequence[float], b: Sequence[float], coefficient: Callable[[Floats, Floats], float]
) -> Correlation | None:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"found {len(x)} and {len(y)} values; expected pairs")
    whole = np.isfinite(x) & np.isfinite(y)
    x, y = x[whole], y[whole]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return Correlation(float(coefficient(x, y)), len(x))
