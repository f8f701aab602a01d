"""Error rates and power of rules, as `reports/stats/README.md` shows them.

    python -m tests.reports.stats.simulate [TABLES]

Printed are, for m comparisons and n blocks, the largest share in % of tables without any true
effect that have a false verdict, over groups of settings; and the share in which one row with a
true effect of 2.5 sd of a run is better. A second table has the rules after a first stage.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

from reports.stats.blocks import LEVEL, compute_family_quantile
from reports.stats.comparison_rule import Sample
from reports.stats.rules import MANY_BLOCKS, WILD_BASELINE, WILD_ROW

Draw = Callable[[np.random.Generator, int, int, int], np.ndarray]  # tables, rows, blocks
quantile = cache(compute_family_quantile)
RULES = ("dunnett_and_t", "holm_t", "pooled_or_holm")


@cache
def load_residuals(metric: str) -> np.ndarray:
    """Return configuration × seed residuals of real trials, each with its own scatter."""
    with Path(__file__).with_name("residuals.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["configuration"], float(row[metric])) for row in csv.DictReader(file)]
    return np.array(
        [[v for c, v in rows if c == name] for name in dict.fromkeys(c for c, _ in rows)]
    )


def draw_scaled(*first: float, later: float = 1.0) -> Draw:
    """Return normal noise with these sds of the baseline and the first rows, `later` of others."""

    def draw(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
        sds = np.full(rows, later)
        sds[: len(first)] = first[:rows]
        return rng.normal(size=(tables, rows, n)) * sds[:, None]

    return draw


def draw_spread(baseline: int) -> Draw:
    """Return normal noise with sds of 0.3 … 3 over rows; the baseline's is that of this rank."""

    def draw(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
        sds = np.roll(np.geomspace(0.3, 3, rows), -(baseline * (rows - 1) // 2))
        return rng.normal(size=(tables, rows, n)) * sds[:, None]

    return draw


def draw_unequal(baseline: float, short: float) -> Draw:
    """Return noise of which half of the rows have an sd of `short` and half of the blocks."""

    def draw(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
        values = draw_scaled(baseline)(rng, tables, rows, n)
        first = max(2, rows // 2)
        values[:, first:] *= short
        values[:, first:, max(2, n // 2) :] = np.nan
        return values

    return draw


def draw_residuals(metric: str) -> Draw:
    """Return residuals of configurations that are drawn for each row, as they are."""

    def draw(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
        residuals = load_residuals(metric)
        chosen = rng.integers(len(residuals), size=(tables, rows, 1))
        return residuals[chosen, rng.integers(residuals.shape[1], size=(tables, rows, n))]

    return draw


def draw_correlated(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
    common = np.sqrt(0.8) * rng.normal(size=(tables, 1, n))
    return common + np.sqrt(0.2) * rng.normal(size=(tables, rows, n))


def draw_collapses(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
    size = (tables, rows, n)
    return rng.normal(size=size) - 10 * (rng.random(size) < 0.1)


def draw_t3(rng: np.random.Generator, tables: int, rows: int, n: int) -> np.ndarray:
    return rng.standard_t(3, size=(tables, rows, n))


NOISE: dict[str, dict[str, Draw]] = {
    "alike": {
        "normal": draw_scaled(),
        "ρ = 0.8": draw_correlated,
        "t₃": draw_t3,
        "10 % collapses": draw_collapses,
    },
    "one row × 10": {"one row × 10": draw_scaled(1, 10)},
    "two rows × 3, 10": {f"two rows × {k}": draw_scaled(1, k, k) for k in (3, 10)},
    "baseline × 3": {"baseline × 3": draw_scaled(3)},
    "baseline × 10": {"baseline × 10": draw_scaled(10)},
    "sds 0.3 … 3": {f"sds 0.3 … 3, baseline {k}": draw_spread(k) for k in (0, 1, 2)},
    "unequal n": {
        f"unequal n, baseline × {k}, short × {j}": draw_unequal(k, j)
        for k, j in ((1, 1), (1, 5), (3, 1), (3, 5))
    },
    "residuals": {
        f"residuals, {metric}": draw_residuals(metric) for metric in ("map_at_r", "recall_at_1")
    },
}


def build_sample(table: np.ndarray, **options: object) -> Sample:
    """Return a table of (row, block) as a sample; NaN is a missing run."""
    rows = [{b: float(y) for b, y in enumerate(row) if not np.isnan(y)} for row in table]
    return Sample(rows[0], {str(i): row for i, row in enumerate(rows[1:], 1)}, **options)  # type: ignore[arg-type]


def compute_half_widths(
    values: np.ndarray, rule: str = RULES[-1], *, stage: int | None = None, others: int = 0
) -> np.ndarray:
    """Return what a rule computes, for each row of many tables (table, row, block) at once.

    Args:
        stage: number of the first blocks, from which alone scatter is taken.
        others: number of comparisons with other baselines.
    """
    early = values[:, :, :stage]
    present = ~np.isnan(early[0])  # the same in all tables
    gaps = early[:, 1:] - early[:, :1]
    common = present[1:] & present[:1]
    dfs, m = common.sum(axis=1) - 1, len(common)
    variances = np.nanvar(gaps, axis=2, ddof=1)
    differences = values[:, 1:] - values[:, :1]
    counts = (~np.isnan(differences[0])).sum(axis=1)
    if rule == "holm_t" or (rule == "pooled_or_holm" and early.shape[2] >= MANY_BLOCKS):
        errors = np.sqrt(variances / counts)
        with np.errstate(all="ignore"):  # equal residuals have no error
            t = np.abs(np.nanmean(differences, axis=2)) / errors
        p = 2 * stats.t.sf(t, dfs)
        rank = p.argsort(axis=1).argsort(axis=1)
        rejected = np.sort(p, axis=1) <= (1 - LEVEL) / (np.arange(m, 0, -1) + others)
        tested = others + m - np.minimum(rank, np.cumprod(rejected, axis=1).sum(axis=1)[:, None])
        return np.asarray(stats.t.isf((1 - LEVEL) / 2 / tested, dfs) * errors)
    # the error of row + block, from the design that all tables share
    design = np.hstack(
        [np.repeat(np.eye(m + 1), early.shape[2], 0), np.tile(np.eye(early.shape[2]), (m + 1, 1))]
    )
    cells = present.ravel()
    left, singular, _ = np.linalg.svd(design[cells], full_matrices=False)
    basis = left[:, singular > 1e-9]
    y = early.reshape(len(early), -1)[:, cells]
    shared_df = basis.shape[0] - basis.shape[1]
    shared = ((y**2).sum(axis=1) - ((y @ basis) ** 2).sum(axis=1)) / shared_df
    overlap = (common[:, None] & common[None]).sum(axis=2) if stage is None else None
    rho = 0.5
    if overlap is not None and m > 1:
        correlations = overlap / (2 * np.sqrt(counts[:, None] * counts))
        rho = float(correlations[~np.eye(m, dtype=bool)].min())
    squares = quantile(m, shared_df, others, rho) ** 2 * 2 * shared[:, None]
    level = np.full(len(values), LEVEL)
    if rule == "pooled_or_holm":
        pooled = (variances * dfs).sum(axis=1) / dfs.sum()
        c = quantile(m, dfs.sum() / (1 + (m - 1) / 4), others, rho)
        level **= m / (m + others)
        floor = stats.t.ppf((1 + level[0]) / 2, dfs.max())
        is_wild = (pooled > 2 * WILD_BASELINE**2 * shared) | (dfs.max() == 1)
        c = np.where(is_wild, max(c, floor), c)
        squares = np.maximum(squares, (c**2 * pooled)[:, None])
        wild = (variances * dfs > pooled[:, None] * stats.chi2.ppf(WILD_ROW, dfs)).sum(axis=1)
        level **= 1 / np.maximum(1, wild)
    tails, index = np.unique((1 + level) / 2, return_inverse=True)
    own = stats.t.ppf(tails[:, None], dfs)[index] ** 2 * variances
    return np.asarray(np.sqrt(np.maximum(squares, own) / counts))


def draw_tables(draw: Draw, m: int, n: int, tables: int, size: float = 0.0) -> np.ndarray:
    """Return tables of m rows and a baseline, of which the last row has a true effect of `size`."""
    values = draw(np.random.default_rng([m, n]), tables, m + 1, n)
    values[:, -1] += size
    return values


def measure(draw: Draw, m: int, n: int, tables: int, rule: str = RULES[-1]) -> float:
    """Return the share of tables without any true effect, in %, that have a false verdict."""
    values = draw_tables(draw, m, n, tables)
    means = np.nanmean(values[:, 1:] - values[:, :1], axis=2)
    return 100 * float((np.abs(means) > compute_half_widths(values, rule)).any(axis=1).mean())


def measure_power(
    draw: Draw, m: int, n: int, tables: int, rule: str = RULES[-1], *, size: float = 2.5
) -> float:
    """Return the share of tables, in %, in which the last row is better, by an effect of `size`."""
    values = draw_tables(draw, m, n, tables, size)
    means = (values[:, -1] - values[:, 0]).mean(axis=1)
    return 100 * float((means > compute_half_widths(values, rule)[:, -1]).mean())


def measure_stages(draw: Draw, m: int, tables: int, *, widen: bool = True) -> float:
    """Return the share of false verdicts, in %, if five seeds decide on up to 40.

    Args:
        widen: whether the interval is at least the ordinary one of the final number.
    """
    first, most, wanted = 5, 40, 0.8
    values = draw_tables(draw, m, most, tables)
    widest = compute_half_widths(values[:, :, :first]).max(axis=1)
    numbers = np.clip(np.ceil(first * (widest / wanted) ** 2), first, most).astype(int)
    wrong = 0
    for n in np.unique(numbers):
        some = values[numbers == n, :, :n]
        halves = compute_half_widths(some, stage=first)
        if widen:
            halves = np.maximum(halves, compute_half_widths(some))
        means = (some[:, 1:] - some[:, :1]).mean(axis=2)
        wrong += int((np.abs(means) > halves).any(axis=1).sum())
    return 100 * wrong / tables


def main(tables: int = 20_000) -> None:
    power = {"power": draw_scaled(), "two rows × 3": draw_scaled(1, 3, 3)}
    columns = [*NOISE, *power]
    print(f"| rule | m | n | {' | '.join(columns)} |")
    print("| :-- | --: | --: |" + " --: |" * len(columns))
    for rule in RULES:
        for m in (1, 4, 10):
            for n in (2, 3, 5, 7, 8, 10, 20):
                cells = [
                    # two residuals drawn from twenty are often one
                    f"{max(measure(draw, m, n, tables, rule) for draw in group.values()):.1f}"
                    if n > 2 or label != "residuals"
                    else "–"
                    for label, group in NOISE.items()
                ]
                cells += [
                    f"{measure_power(draw, m, n, tables, rule):.0f}" if m > 2 or i == 0 else "–"
                    for i, draw in enumerate(power.values())
                ]
                print(f"| {rule} | {m} | {n} | {' | '.join(cells)} |", flush=True)
    print("\n| first stage of five | m | normal | t₃ | 10 % collapses |")
    print("| :-- | --: | --: | --: | --: |")
    for widen in (False, True):
        for m in (1, 4, 10):
            cells = [
                f"{measure_stages(draw, m, tables // 4, widen=widen):.1f}"
                for draw in (draw_scaled(), draw_t3, draw_collapses)
            ]
            print(f"| {'max' if widen else 'Stein'} | {m} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
