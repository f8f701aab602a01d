"""Main effects and interactions of full and fractional factorials, by least squares.

The model is y = seed + Σ terms + error, with the seed as a block (runs at one seed share their
draws). Two-level factors are coded −1 and +1, others by deviations from their mean. Cells that are
copies of each other are one observation: k copies weigh 1/k each, and count once in the error.

Shapley attribution says how much of a full factorial's gain each component is due.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from reports.stats.blocks import LEVEL, SharedError, dunnett_quantile, find_originals

Floats = NDArray[np.float64]
ROUNDING = 1e-12  # of the values, below which scatter is none
ZERO = 1e-9  # of a column's length, below which least squares takes it as spanned by others


@dataclass(frozen=True)
class Effect:
    """One term: a main effect (one factor) or an interaction (several).

    estimate: for two-level factors 2β, that is mean at high − mean at low; for an interaction half
        the difference of one factor's effect at the other's two levels (both have one standard
        error in a balanced design). None if a factor has more levels: see `spread`.
    se, low, high: its standard error and 95 % interval; None without degrees of freedom.
    spread: largest − smallest of the fitted level means (of an interaction: of its deviations).
    best: the level (or levels) with the best fitted mean.
    share: ω² = (SS − df σ²) / (SS_between + σ²), at least 0: the share of the variation between
        cells' means, without what noise alone gives a term; η² = SS / SS_between without an error.
    df, f, p: of the F test of the term; f and p None without an error above rounding.
    """

    term: tuple[str, ...]
    estimate: float | None
    se: float | None
    low: float | None
    high: float | None
    spread: float
    best: tuple[str, ...]
    share: float
    df: int
    f: float | None
    p: float | None


@dataclass(frozen=True)
class Fit:
    """The effects of all terms that are not aliased, and their error.

    error: "replicates" (cells × seeds after their main effects), "residual" (of all terms) or
        "none". error_df: its degrees of freedom; sigma: its standard deviation.
    aliased: terms left out because earlier ones span them, with the terms they are mixed with.
    n: values used; cells: cells with any, distinct: without copies. flat: no two cells differ by
        more than rounding.
    """

    effects: tuple[Effect, ...]
    error: str
    error_df: int
    sigma: float | None
    aliased: dict[tuple[str, ...], tuple[tuple[str, ...], ...]]
    n: int
    cells: int
    flat: bool
    distinct: int


def fit_factorial(
    cells: Sequence[tuple[Mapping[str, str], Mapping[int, float]]],
    *,
    order: int = 2,
    levels: Mapping[str, Sequence[str]] | None = None,
    resolution: float = 0.0,
    family: int = 1,
    sign: int = 1,
    level: float = LEVEL,
) -> Fit | None:
    """Fit main effects and interactions of up to `order` factors by least squares, with F tests.

    Each term's estimate is its coefficient in the model with all terms (in a balanced full
    factorial, a contrast of means); its F test drops the term from that model: F = (ΔSS/df) / σ².
    If cells have several seeds, σ² is the mean square of what the main effects of cell and seed
    leave over. Else it is that of the model's residuals, so that higher interactions count as
    error. Without degrees of freedom there are neither σ² nor standard errors nor p.

    A term whose columns are spanned, in whole or in part, by those of earlier ones (main effects
    first, then interactions in the order of the factors) is left out and listed in `aliased`: the
    estimate of a term that stays is mixed with those of terms left out, as in fractional designs.

    Args:
        cells: (level by factor, {seed: value}) for each cell, a combination of levels; values that
            are not finite are left out. A factor that a cell lacks is at the level "".
        order: 1 for main effects alone, 2 for two-way interactions too, and so on.
        levels: the order of a factor's levels, low first; default: as they come.
        resolution: cells whose values at each seed differ by less, or not at all, are copies.
        family: number of intervals that hold together at `level` (independent contrasts).
        sign: 1 if the largest fitted mean is the best, −1 if the smallest one is.

    Returns:
        None if fewer than two cells have a value, or no factor varies.

    Source: Montgomery, "Design and Analysis of Experiments" (8th ed.), chs. 4, 6 and 8.
    """
    from scipy.stats import f as f_distribution

    # the finite values as arrays, and the columns of seeds and of terms
    finite = [
        (coords, values)
        for coords, row in cells
        if (values := {seed: float(y) for seed, y in row.items() if np.isfinite(y)})
    ]
    factors = _collect_factor_levels([coords for coords, _ in finite], levels or {})
    by_cell = {tuple(coords.get(name, "") for name in factors): values for coords, values in finite}
    if len(by_cell) < 2:
        return None
    rows = [(key, seed, y) for key, values in by_cell.items() for seed, y in values.items()]
    keys = [key for key, _, _ in rows]
    y = np.array([value for _, _, value in rows])
    seeds = np.array([seed for _, seed, _ in rows])
    blocks = (seeds[:, None] == np.array([*dict.fromkeys(seeds)])).astype(np.float64)
    codes = {
        name: _encode_factor([key[i] for key in keys], factor_levels)
        for i, (name, factor_levels) in enumerate(factors.items())
    }
    terms, aliased = _select_independent_terms(blocks, codes, order)

    # least squares, in which k copies weigh 1/k each
    originals = find_originals(by_cell, resolution)
    counts = Counter(originals.values())
    root_weights = np.sqrt([1 / counts[originals[key]] for key in keys])
    model = np.hstack([blocks, *terms.values()]) * root_weights[:, None]
    beta = np.linalg.lstsq(model, y * root_weights, rcond=None)[0]
    inverse = np.linalg.inv(model.T @ model)

    # error: of the replicates (seeds) of distinct cells, else of the residuals of the model
    is_distinct = np.array([originals[key] == key for key in keys])
    distinct_keys = [key for key in keys if originals[key] == key]
    within, rank = _compute_within_squares(y[is_distinct], blocks[is_distinct], distinct_keys)
    between = _compute_residual_squares(y[is_distinct], blocks[is_distinct]) - within
    squares, error, df = within, "replicates", len(distinct_keys) - rank
    if df < 1:
        squares, error = _compute_residual_squares(y * root_weights, model), "residual"
        df = len(distinct_keys) - model.shape[1]
    variance = squares / df if df > 0 else None
    rounding = (ROUNDING * np.abs(y).max()) ** 2
    is_flat = bool(between <= len(y) * rounding)

    # the effect and F test of each term, from its part of the coefficients
    effects, start = [], blocks.shape[1]
    for term, columns in terms.items():
        part = slice(start, start + columns.shape[1])
        start = part.stop
        fitted = columns @ beta[part]
        best_key = dict(zip(factors, keys[int(np.argmax(sign * fitted))], strict=True))
        width, noise = columns.shape[1], variance or 0.0
        term_squares = float(beta[part] @ np.linalg.solve(inverse[part, part], beta[part]))
        share = 0.0 if is_flat else max(0.0, (term_squares - width * noise) / (between + noise))
        has_two_levels = all(len(factors[name]) == 2 for name in term)
        estimate = 2 * float(beta[part][0]) if has_two_levels else None  # codes are ±1
        se = low = high = f = p = None
        if variance is not None and variance > rounding:
            f = term_squares / width / variance
            p = float(f_distribution.sf(f, width, df))
            if estimate is not None:
                se = 2 * float(np.sqrt(variance * inverse[part, part][0, 0]))
                half = dunnett_quantile(family, df, 0.0, level) * se
                low, high = estimate - half, estimate + half
        size = (estimate, se, low, high, float(np.ptp(fitted)))
        effects.append(Effect(term, *size, tuple(best_key[n] for n in term), share, width, f, p))
    return Fit(
        effects=tuple(effects),
        error="none" if variance is None else error,
        error_df=max(df, 0),
        sigma=None if variance is None else float(np.sqrt(variance)),
        aliased=aliased,
        n=len(y),
        cells=len(by_cell),
        flat=is_flat,
        distinct=len(counts),
    )


def _collect_factor_levels(
    rows: Sequence[Mapping[str, str]], declared: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Map each factor that varies to its levels: the declared ones in their order, then others."""
    factors = {}
    for name in dict.fromkeys(name for coords in rows for name in coords):
        levels = dict.fromkeys(coords.get(name, "") for coords in rows)
        order = [level for level in declared.get(name, ()) if level in levels]
        if len(levels) > 1:
            factors[name] = [*dict.fromkeys([*order, *levels])]
    return factors


def _encode_factor(values: Sequence[str], levels: Sequence[str]) -> Floats:
    """Return [n, levels − 1]: −1 and +1 for two levels, else deviations (the first level is −1)."""
    first = np.array([value == levels[0] for value in values], dtype=np.float64)
    columns = [np.array([value == level for value in values]) - first for level in levels[1:]]
    return np.stack(columns, axis=1)


def _select_independent_terms(
    blocks: Floats, codes: Mapping[str, Floats], order: int
) -> tuple[dict[tuple[str, ...], Floats], dict[tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Return the columns of each term that earlier terms do not span, and for each other term the
    terms with which its effect is mixed.

    Args:
        blocks: columns of the seeds.
        codes: coded columns of each factor.
        order: number of factors in the largest interactions.
    """
    independent: dict[tuple[str, ...], Floats] = {}
    aliased: dict[tuple[str, ...], tuple[tuple[str, ...], ...]] = {}
    basis = np.linalg.qr(blocks)[0]
    for size in range(1, order + 1):
        for term in combinations(codes, size):
            # the columns of an interaction are all products of its factors' columns
            columns = codes[term[0]]
            for name in term[1:]:
                further = codes[name]
                columns = (columns[:, :, None] * further[:, None, :]).reshape(len(columns), -1)
            residual = columns - basis @ (basis.T @ columns)
            residual -= basis @ (basis.T @ residual)  # once more, against rounding errors
            sizes = np.linalg.svd(residual, compute_uv=False)
            if len(sizes) == columns.shape[1] and sizes.min() > ZERO * len(residual):
                independent[term] = columns
                basis = np.hstack([basis, np.linalg.qr(residual)[0]])
            else:
                aliased[term] = _find_aliases(columns, blocks, independent)
    return independent, aliased


def _find_aliases(
    columns: Floats, blocks: Floats, independent: Mapping[tuple[str, ...], Floats]
) -> tuple[tuple[str, ...], ...]:
    """Return the independent terms that a least-squares fit of a term's `columns` uses."""
    weights = np.linalg.lstsq(np.hstack([blocks, *independent.values()]), columns, rcond=None)[0]
    start, mixed = blocks.shape[1], []
    for other, other_columns in independent.items():
        if np.abs(weights[start : start + other_columns.shape[1]]).max() > ZERO:
            mixed.append(other)
        start += other_columns.shape[1]
    return tuple(mixed)


def _compute_within_squares(
    y: Floats, blocks: Floats, cells: Sequence[tuple[str, ...]]
) -> tuple[float, int]:
    """Return the sum of squares of y that cells and blocks do not explain, and their joint rank.

    The means of cells are subtracted first, so that thousands of cells need no matrix.

    Args:
        cells: the cell of each value of y.
    """
    number = {key: i for i, key in enumerate(dict.fromkeys(cells))}
    cell = np.array([number[key] for key in cells])
    counts = np.bincount(cell)
    both = np.column_stack([y, blocks])
    sums = np.zeros((len(counts), both.shape[1]))
    np.add.at(sums, cell, both)
    residual = both - (sums / counts[:, None])[cell]
    rank = int(np.linalg.matrix_rank(residual[:, 1:], tol=ZERO * len(y)))
    return _compute_residual_squares(residual[:, 0], residual[:, 1:]), len(counts) + rank


def _compute_residual_squares(y: Floats, model: Floats) -> float:
    residual = y - model @ np.linalg.lstsq(model, y, rcond=None)[0]
    return float(residual @ residual)


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
