"""Shapley attribution: how much of a full factorial's gain each component is due."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial

import numpy as np

from reports.stats.blocks import LEVEL, SharedError, dunnett_quantile, find_originals


@dataclass(frozen=True)
class Attribution:
    """Each component's share of total = v(all) − v(none), with intervals.

    values: mean over the seeds that have every subset; they sum to `total`.
    intervals: φ_i is a contrast of the cells' means, so φ_i ± t σ √(Σ_g w_g² / n) with σ and the
        degrees of freedom of the factorial's error, n seeds, and w_g the sum of φ_i's weights over
        the cells of a group of copies. None without an error.
    dropped: the seeds that lack a subset.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float] | tuple[None, None]]
    total: float
    dropped: tuple[int, ...]


def shapley(worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Return each component's Shapley value: its mean gain over all orders of adding components.

    φ_i = Σ_{S ⊆ N∖{i}} |S|! (n − |S| − 1)! / n! · (v(S ∪ {i}) − v(S)), in the unit of `worth`, and
    Σ φ_i = v(N) − v(∅).

    Args:
        worth: v of every subset of the components.

    Source: Shapley, "A Value for n-Person Games", Contributions to the Theory of Games II
    (1953).
    """
    names = sorted(frozenset[str]().union(*worth))
    n = len(names)
    bit_of = {name: 1 << i for i, name in enumerate(names)}
    v = np.empty(2**n)  # subsets as bit masks
    for subset, value in worth.items():
        v[sum(bit_of[name] for name in subset)] = value
    masks = np.arange(2**n)
    sizes = np.array([mask.bit_count() for mask in range(2**n)])
    weights = np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in range(n)])
    values = {}
    for name, bit in bit_of.items():
        without = masks[(masks & bit) == 0]
        values[name] = float((weights[sizes[without]] * (v[without | bit] - v[without])).sum())
    return values


def attribute_over_seeds(
    worth: Mapping[frozenset[str], Mapping[int, float]],
    error: SharedError | None = None,
    *,
    resolution: float = 0.0,
    family: int = 1,
    level: float = LEVEL,
) -> Attribution | None:
    """Return the mean of each component's Shapley values over seeds, with its interval.

    Args:
        worth: {subset: {seed: value}}. A seed that lacks a subset, or has no finite value there, is
            dropped (and named): its attribution would not sum to its own total.
        error: of one trial, from `fit_factorial`; None gives no intervals.
        resolution, family, level: as in `fit_factorial`.

    Returns:
        None if no seed has all 2^n subsets.
    """
    names = sorted(frozenset[str]().union(*worth))
    seeds = sorted({seed for values in worth.values() for seed in values})
    rows = list(worth.values())
    complete = [s for s in seeds if all(np.isfinite(row.get(s, np.nan)) for row in rows)]
    if len(worth) < 2 ** len(names) or not complete:
        return None
    # values: the mean over seeds
    by_seed = [shapley({s: values[seed] for s, values in worth.items()}) for seed in complete]
    values = {name: float(np.mean([shares[name] for shares in by_seed])) for name in names}
    totals = [worth[frozenset(names)][seed] - worth[frozenset()][seed] for seed in complete]
    # intervals: from the size of each contrast
    intervals: dict[str, tuple[float, float] | tuple[None, None]]
    intervals = dict.fromkeys(names, (None, None))
    if error is not None:
        quantile = dunnett_quantile(family, error.df, 0.0, level)
        used = {subset: {seed: row[seed] for seed in complete} for subset, row in worth.items()}
        originals = find_originals(used, resolution)
        for name in names:
            half = quantile * error.sd * _compute_contrast_size(name, originals)
            half /= np.sqrt(len(complete))
            intervals[name] = (values[name] - half, values[name] + half)
    dropped = tuple(seed for seed in seeds if seed not in complete)
    return Attribution(values, intervals, float(np.mean(totals)), dropped)


def _compute_contrast_size(name: str, originals: Mapping[frozenset[str], frozenset[str]]) -> float:
    """Return √(Σ_g w_g²): the error of a Shapley value, divided by the error of one cell's mean.

    w_g sums the weights of the value's formula over a group g of cells that are copies.
    """
    n = max(map(len, originals))
    groups: dict[frozenset[str], float] = {}
    for subset, original in originals.items():
        others = len(subset - {name})
        weight = factorial(others) * factorial(n - others - 1) / factorial(n)
        sign = 1 if name in subset else -1
        groups[original] = groups.get(original, 0.0) + sign * weight
    return float(np.sqrt(sum(w * w for w in groups.values())))
