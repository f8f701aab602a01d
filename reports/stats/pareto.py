"""The points that no other point beats in both respects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def front(costs: Sequence[float], values: Sequence[float]) -> tuple[int, ...]:
    """Indices of the Pareto front of least cost and largest value, by ascending cost.

    A point is dominated where another costs no more and is worth no less, and differs in one of
    the two; points that are alike are on the front together. A point with a number that is not
    finite is on none.

    Raises:
        ValueError: costs and values differ in length.
    """
    x, y = np.asarray(costs, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"found {len(x)} costs and {len(y)} values; expected as many of each")
    known = [int(i) for i in np.lexsort((-y, x)) if np.isfinite(x[i]) and np.isfinite(y[i])]
    found: list[int] = []
    for i in known:
        last = found[-1] if found else None
        if last is None or y[i] > y[last] or (x[i] == x[last] and y[i] == y[last]):
            found.append(i)
    return tuple(found)
