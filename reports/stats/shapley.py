"""Shapley attribution: how much of a full factorial's gain each component is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial as faculty

import numpy as np

from reports.stats.blocks import SharedError, are_equal, dunnett_quantile

MAX_COMPONENTS = 16  # 2^16 subsets


@dataclass(frozen=True)
class Attribution:
    """Each component's share of total = v(all) − v(none), with intervals.

    values: mean over the seeds that have every subset; they sum to `total`.
    intervals: φ_i is a contrast of the cells' means, so φ_i ± t σ √(Σ_g w_g² / n) with σ and the
        degrees of freedom of the factorial's error, n seeds, and w_g the sum of φ_i's weights over
        the cells of a group of copies. None without an error.
    seeds: those that count; dropped: those that lack a subset.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float] | None]
    total: float
    seeds: tuple[int, ...]
    dropped: tuple[int, ...]


def shapley(worth: Mapping[frozenset[str], float]) -> dict[str, float]:
    """Return φ_i = Σ_{S ⊆ N∖{i}} |S|! (n − |S| − 1)! / n! · (v(S ∪ {i}) − v(S)), over all subsets.

    The mean gain of adding i, over all orders in which the components may be added; in the unit of
    `worth`. Σ φ_i = v(N) − v(∅).

    Args:
        worth: v of every subset of the components.

    Raises:
        ValueError: a subset is missing or its worth is not finite, or more than 16 components.

    Source: Shapley, "A Value for n-Person Games", Contributions to the Theory of Games II
    (1953).
    """
    names = sorted(frozenset[str]().union(*worth))
    n = len(names)
    if n > MAX_COMPONENTS:
        raise ValueError(f"at most {MAX_COMPONENTS} components, not {n}. Use fewer.")
    bit_of = {name: 1 << i for i, name in enumerate(names)}
    v = np.full(2**n, np.nan)
    for subset, value in worth.items():
        v[sum(bit_of[name] for name in subset)] = value
    subsets = (subset for size in range(n + 1) for subset in combinations(names, size))
    if lost := [s for s in subsets if not np.isfinite(v[sum(bit_of[name] for name in s)])]:
        words = " + ".join(lost[0]) or "none"
        raise ValueError(f"the worth of every subset, not without {words} ({len(lost)} missing)")
    masks = np.arange(2**n)
    sizes = np.array([bin(mask).count("1") for mask in masks])
    weights = np.array([faculty(s) * faculty(n - s - 1) / faculty(n) for s in range(n)])
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
) -> Attribution | None:
    """Return Shapley values seed by seed, their means and intervals from the factorial's error.

    Args:
        worth: {subset: {seed: value}}. A seed that lacks a subset, or has no finite value there, is
            dropped (and named): its attribution would not sum to its own total.
        error: of one trial, as the factorial's fit has it. resolution, family: as there.

    Returns:
        None if no seed has all 2^n subsets.
    """
    names = sorted(frozenset[str]().union(*worth))
    seen = {seed for values in worth.values() for seed in values}
    complete = [
        seed
        for seed in sorted(seen)
        if len(worth) == 2 ** len(names)
        and all(np.isfinite(values.get(seed, np.nan)) for values in worth.values())
    ]
    if not complete:
        return None
    by_seed = [shapley({s: values[seed] for s, values in worth.items()}) for seed in complete]
    columns = {name: [one[name] for one in by_seed] for name in names}
    values = {name: float(np.mean(column)) for name, column in columns.items()}
    intervals: dict[str, tuple[float, float] | None] = dict.fromkeys(names)
    if error is not None:
        complete_worth = {
            subset: {seed: row[seed] for seed in complete} for subset, row in worth.items()
        }
        quantile = dunnett_quantile(family, error.df, 0.0)
        for name in names:
            size = _compute_contrast_size(name, complete_worth, resolution)
            half = quantile * error.sd * size / np.sqrt(len(complete))
            intervals[name] = (values[name] - half, values[name] + half)
    totals = [worth[frozenset(names)][seed] - worth[frozenset()][seed] for seed in complete]
    return Attribution(
        values,
        intervals,
        float(np.mean(totals)),
        tuple(complete),
        tuple(sorted(seen - set(complete))),
    )


def _compute_contrast_size(
    name: str, worth: Mapping[frozenset[str], Mapping[int, float]], resolution: float
) -> float:
    """Return √(Σ_g w_g²) of a component's contrast over groups of cells that are copies."""
    n = max(map(len, worth))
    groups: dict[frozenset[str], float] = {}
    for subset, row in worth.items():
        others = len(subset - {name})
        weight = faculty(others) * faculty(n - others - 1) / faculty(n)
        same = (g for g in groups if are_equal(row, worth[g], resolution))
        group = next(same, subset)
        groups[group] = groups.get(group, 0.0) + (weight if name in subset else -weight)
    return float(np.sqrt(sum(w * w for w in groups.values())))
