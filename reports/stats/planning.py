"""Compute what a number of seeds or splits can show: variance components, half-widths, power.

Model: y_rbs = row_r + seed_bs + e_rb + e_rbs. The rows have the noise of seed s of split b in
common, e_rb ~ N(0, σ²_split) is the interaction split × method, and e_rbs ~ N(0, σ²_seed) is the
rest of the training noise. A rule sees the means of J splits over k seeds each, whose residuals
from row + split have the variance σ²_split + σ²_seed / k. Two mean squares estimate it by the
method of moments (Henderson III): M_seed, of the residuals from row + seed within splits, and
M_split, of what row × split explains beyond row + seed:

    E M_split = σ²_split + σ²_seed / k,    E M_seed = σ²_seed

Without failed runs, M_split has (R − 1)(J − 1) degrees of freedom and M_seed (R − 1) J (k − 1).
With them, k = tr(Z'MZ) / ν_split, where Z indicates row × split and M projects on the residuals
from row + seed. A study without `splits` has its seeds as blocks, and M_split alone.

Ranges are quantiles of generalised pivotal quantities: each mean square M is drawn as M ν / χ²_ν.
They hold for any function of the components, also one with a negative coefficient, for which
Satterthwaite's degrees of freedom fail.

References:
    Henderson, "Estimation of variance and covariance components", Biometrics 9 (1953): method III.
    Weerahandi, "Generalized confidence intervals", JASA 88 (1993).
    Searle, Casella and McCulloch, "Variance Components" (1992), chapters 4 and 5.
"""

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from reports.kinds import DEFAULT_RULE
from reports.stats.blocks import (
    LEVEL,
    NODES,
    Blocks,
    compute_family_quantile,
    dunnett_quantile,
    fit_shared_error,
)
from reports.stats.comparison_rule import Sample, load_rule
from reports.stats.rules import MANY_BLOCKS

Runs = Mapping[int, Blocks]  # block (split, or seed) → seed → value
DRAWS = 2000  # of the mean squares
ROWS, LEAST_TABLES = 120, 40  # simulated, whose intervals a rule gives
LARGEST = 32  # number of blocks of these tables; more scale by 1 / √blocks


@dataclass(frozen=True)
class VarianceComponents:
    """The two mean squares of a table and their degrees of freedom.

    Attributes:
        blocks: J. seeds: k, in a block.
        block_square, block_df: M_split of the model, of the means of a row on a block.
        seed_square, seed_df: M_seed; 0 where a block has one run of each row.
    """

    blocks: int
    seeds: float
    block_square: float
    block_df: int
    seed_square: float = 0.0
    seed_df: int = 0

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Return draws of σ²_split and σ²_seed; the first contains the second without M_seed."""
        rng = np.random.default_rng(0)
        block = self.block_square * self.block_df / rng.chisquare(self.block_df, DRAWS)
        if not self.seed_df:
            return block, np.zeros(DRAWS)
        seed = self.seed_square * self.seed_df / rng.chisquare(self.seed_df, DRAWS)
        return np.maximum(block - seed / self.seeds, 0.0), seed

    @property
    def seed_share(self) -> float:
        """The share of training noise in the variance of the table's own design, at most 1."""
        noise = self.seed_square / self.seeds
        return noise / max(noise, self.block_square) if noise else 0.0

    def forget_splits(self) -> "VarianceComponents":
        """Return the components of the same runs as seeds of one split, about which claims are."""
        return VarianceComponents(self.blocks, 1, self.seed_square, self.seed_df)


def estimate_components(rows: Sequence[Runs]) -> VarianceComponents | None:
    """Estimate the components of distinct rows of a table, the baseline included.

    Returns:
        None without a degree of freedom for blocks, as with one row or one block.
    """
    runs = [
        (r, block, seed, value)
        for r, row in enumerate(rows)
        for block, by_seed in row.items()
        for seed, value in by_seed.items()
    ]
    # residuals of the values and of the indicators of row × block from row + (block, seed)
    fixed = _build_indicators([run[0] for run in runs], [run[1:3] for run in runs])
    cells = _build_indicators([run[:2] for run in runs])
    targets = np.column_stack([[run[3] for run in runs], cells])
    targets[:, 0] -= targets[:, 0].mean()
    coefficients, _, rank, _ = np.linalg.lstsq(fixed, targets)
    squares = ((targets - fixed @ coefficients) ** 2).sum(axis=0)
    # those from row + seed within each block, which leave row × block out
    blocks = sorted({block for row in rows for block in row})
    within = [fit_shared_error([row[block] for row in rows if block in row]) for block in blocks]
    errors = [error for error in within if error is not None]
    seed_df = sum(error.df for error in errors)
    seed_squares = sum(error.sd**2 * error.df for error in errors)
    df = len(runs) - int(rank) - seed_df
    if df < 1:
        return None
    spread = float(squares[1:].sum())  # how often σ²_split is in the squares
    block_square = max(0.0, float(squares[0]) - seed_squares) / spread
    seed_square = seed_squares / seed_df if seed_df else 0.0
    return VarianceComponents(len(blocks), spread / df, block_square, df, seed_square, seed_df)


def _build_indicators(*factors: Sequence[Hashable]) -> np.ndarray:
    """Return a column of 0 and 1 for each level of each factor, given its level in each run."""
    columns = [dict.fromkeys(levels) for levels in factors]
    return np.column_stack(
        [
            [float(level == name) for level in levels]
            for levels, names in zip(factors, columns, strict=True)
            for name in names
        ]
    )


@dataclass(frozen=True)
class Design:
    """Blocks (splits, or seeds of one split), and seeds in each; 0 stands for infinitely many."""

    blocks: int
    seeds: int = 1

    @property
    def trainings(self) -> int:
        """The trainings of a row."""
        return self.blocks * self.seeds


@dataclass(frozen=True)
class Family:
    """The rule and the number of comparisons by which a table is judged.

    comparisons: with one baseline. others: with other baselines. level: of the intervals.
    """

    rule: str
    comparisons: int
    others: int = 0
    level: float = LEVEL


def draw_half_widths(components: VarianceComponents, design: Design, family: Family) -> np.ndarray:
    """Return draws of the half-width that a row's interval would have in another design.

    They contain what is not known of the components, and the luck of the design's own runs. More
    splits of the same classes have fewer classes each, so that σ²_split grows with their number.
    """
    split, seed = components.draw()
    if components.seed_df and design.blocks != components.blocks:
        split = split * design.blocks / components.blocks
    variances = split + (seed / design.seeds if design.seeds else 0.0)
    unit = _draw_unit_half_widths(family, min(design.blocks, LARGEST))
    scale = max(1.0, design.blocks / LARGEST) ** -0.5
    return np.asarray(scale * np.sqrt(variances) * np.random.default_rng(1).choice(unit, DRAWS))


@lru_cache(maxsize=256)
def _draw_unit_half_widths(family: Family, blocks: int) -> np.ndarray:
    """Return the half-widths that a rule gives rows whose residuals have the variance 1."""
    rng, rule, n_rows = np.random.default_rng(2), load_rule(family.rule), family.comparisons
    halves: list[float] = []
    for _ in range(max(LEAST_TABLES, ROWS // n_rows)):
        base, *rows = (dict(enumerate(row)) for row in rng.normal(size=(n_rows + 1, blocks)))
        named = {str(i): row for i, row in enumerate(rows)}
        sample = Sample(base, named, others=family.others, level=family.level)
        halves += [half for half, _ in rule.compute_half_widths(sample).values()]
    return np.array(halves)


def choose_seeds(
    components: VarianceComponents,
    family: Family,
    half_width: float,
    most: int,
    *,
    share: float = 0.5,
    blocks: int | None = None,
) -> int | None:
    """Return the least number of seeds a block with which `share` of the draws are short enough.

    It is at most `most`. None means that less than a fifth of the draws are short enough with any
    number of seeds, since the part of the splits alone is longer.

    Args:
        blocks: number of splits. Default: that of the components.
    """

    def is_short(seeds: int, share: float = share) -> bool:
        design = Design(blocks or components.blocks, seeds)
        halves = draw_half_widths(components, design, family)
        return bool(np.quantile(halves, share) <= half_width)

    if not is_short(0, 0.2):
        return None
    return 1 + bisect_left(range(1, most), True, key=is_short)


def choose_final_seeds_of_splits(
    components: VarianceComponents, family: Family, half_width: float, most: int
) -> int | None:
    """Return the number of seeds a split with which the noise of training is short enough.

    The number follows from M_seed alone, of which the splits' means are independent, so that the
    ordinary interval over splits keeps its level. With M_split, a split part that is small by luck
    would stop seeds early and shorten the interval, too: up to 7 % false verdicts. M_split only
    decides whether there are further seeds at all: None if none would do.
    """
    if choose_seeds(components, family, half_width, most) is None:
        return None
    noise = replace(components, block_square=0.0)
    return choose_seeds(noise, family, half_width, most, share=0.8)


POWER = 0.8
Quantiles = Mapping[float, float]  # degrees of freedom → quantile


def compute_detectable_size(
    seeds: int, comparisons: int, *, cells: int | None = None, baselines: int = 1
) -> float | None:
    """Return the true difference that the default rule detects in 80 % of cases, in sds of a run.

    A row (`cells` is None) is detected if its intervals leave out 0, of which the rule has one from
    8 seeds on, Holm's first with n − 1 degrees of freedom, and three below: its own t, Dunnett's
    with m (n − 1), and Dunnett's over the pooled scatter. The two sides of a main effect (`cells`
    given) have n·cells/2 runs each, and no baseline in common (correlation 0).

    Args:
        seeds: n, the seeds of both rows.
        comparisons: m, the number of comparisons in the family.
        cells: the cells of a two-level factorial that is judged by its main effects.
        baselines: number of baselines over which the comparisons of a matrix are divided.

    Returns:
        None for fewer than two seeds.
    """
    if seeds < 2:
        return None
    if cells is not None:
        df = (cells - 1) * (seeds - 1)
        return _solve_size({df: dunnett_quantile(comparisons, df, 0.0)}, {}, seeds * cells / 2)
    rows = max(1, comparisons // baselines)  # with one baseline, whose errors they share
    own_level, shared_dfs = 1 - (1 - LEVEL) / comparisons, list[float]()
    if seeds < MANY_BLOCKS and rows > 1:
        own_level = LEVEL ** (rows / comparisons)
        shared_dfs = [rows * (seeds - 1), rows * (seeds - 1) / (1 + (rows - 1) / 4)]
    own: Quantiles = {seeds - 1: dunnett_quantile(1, seeds - 1, level=own_level)}
    shared = {df: compute_family_quantile(rows, df, comparisons - rows) for df in shared_dfs}
    return _solve_size(own, shared, seeds)


def _solve_size(own: Quantiles, shared: Quantiles, per_side: float) -> float:
    """Return the δ that all t tests detect in 80 % of cases, with `per_side` runs.

    A test rejects if z > q s with z ~ N(δ √(per_side / 2), 1) and s² ~ χ²_df / df. The tests have z
    in common; s of a row's own test and of the shared ones are taken as independent, and those of
    the shared ones as one.

    Args:
        own, shared: degrees of freedom → quantile q of the tests.
    """
    from scipy import optimize, stats

    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    errors = stats.norm.ppf((nodes + 1) / 2)

    def compute_excess(shift: float) -> float:
        z = np.maximum(shift + errors, 0.0)
        chances = [
            [stats.chi2.cdf(df * (z / q) ** 2, df) for df, q in tests.items()]
            for tests in (own, shared)
            if tests
        ]
        joint = np.prod([np.min(each, axis=0) for each in chances], axis=0)
        return float(weights @ joint) / 2 - POWER

    most = max({**own, **shared}.values())
    shift = optimize.brentq(compute_excess, 0.0, 3 * most + 5)  # the root lies between
    return float(shift * np.sqrt(2 / per_side))


def choose_final_seeds(
    differences: Sequence[Sequence[float]], half_width: float, at_most: int, level: float = LEVEL
) -> int:
    """Return Stein's number of seeds n, with which each row's interval has t s / √n ≤ half_width.

    n is decided once, from a first stage of seeds. The final interval keeps the s and the degrees
    of freedom of the first stage (`Sample.first_stage`), so that it holds its level for any σ.

    Args:
        differences: for each row of a family, those to the baseline at the first stage's seeds.
        half_width: in the unit of the differences. at_most: the largest n. level: of intervals.

    References:
        Stein, "A two-sample test for a linear hypothesis whose power is independent of the
        variance", Annals of Mathematical Statistics 16 (1945).
    """
    from reports.stats.comparison_rule import Sample, load_rule

    # intervals of the first stage: differences are rows against a baseline of zeros, whose blocks
    # a rule cannot tell from those of any other baseline
    first = min(map(len, differences))
    zeros = dict.fromkeys(range(first), 0.0)
    rows = {str(i): dict(enumerate(row[:first])) for i, row in enumerate(differences)}
    reach = load_rule(DEFAULT_RULE).compute_half_widths(Sample(zeros, rows, level=level))
    widest = max(half for half, _ in reach.values())
    return int(min(at_most, max(first, np.ceil(first * (widest / half_width) ** 2))))
