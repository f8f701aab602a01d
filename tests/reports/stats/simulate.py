"""Error rates and power of rules, as `reports/stats/README.md` shows them.

    python -m tests.reports.stats.simulate [TABLES]

Tables of 7 rows and a baseline without any true effect: share with a false verdict in %, by noise.
Power: share of tables in which one row with a true effect of 2, 3, 5 and 10 sd of a run is better.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np
from scipy import optimize, special, stats

from reports.stats.blocks import dunnett_quantile, fit_shared_error
from reports.stats.comparison_rule import ComparisonRule, Sample, load_rule
from reports.stats.rules.holm_t import assign_holm_levels

ROWS = 7
SEEDS = (3, 5, 8)
SIZES = (2, 3, 5, 10)
Draw = Callable[[np.random.Generator, int], np.ndarray]


class DunnettAlone(ComparisonRule):
    """Dunnett's interval without the row's own t: what the guard is for."""

    name = "dunnett"
    description = ""

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        error = fit_shared_error([sample.baseline, *sample.rows.values()])
        assert error is not None
        c = dunnett_quantile(len(sample.rows), error.df)
        half = float(c * error.sd * np.sqrt(2 / len(sample.baseline)))
        return dict.fromkeys(sample.rows, (half, half))


class ModeratedT(ComparisonRule):
    """Empirical-Bayes moderated paired t (Smyth 2004), with Holm's correction."""

    name = "moderated_t"
    description = ""

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        gaps = {name: sample.compute_differences(name) for name in sample.rows}
        df = len(sample.baseline) - 1
        variances = np.array([gap.var(ddof=1) for gap in gaps.values()])
        # moments of log s²: ψ and ψ' of half the degrees of freedom
        logs = np.log(variances) - special.digamma(df / 2) + np.log(df / 2)
        spread = logs.var(ddof=1) - special.polygamma(1, df / 2)
        prior, centre = np.inf, float(np.exp(logs.mean()))
        if spread > 0:
            prior = 2 * optimize.brentq(lambda x: special.polygamma(1, x) - spread, 1e-6, 1e6)
            centre = float(np.exp(logs.mean() + special.digamma(prior / 2) - np.log(prior / 2)))
        total = min(df + prior, df * len(gaps))
        share = 0.0 if np.isinf(prior) else df / (df + prior)
        moderated = np.sqrt((1 - share) * centre + share * variances)
        errors = dict(zip(gaps, moderated / np.sqrt(df + 1), strict=True))
        p = {
            name: float(2 * stats.t.sf(abs(gap.mean()) / errors[name], total))
            for name, gap in gaps.items()
        }
        levels = assign_holm_levels(p)
        halves = {name: float(stats.t.isf(levels[name] / 2, total) * errors[name]) for name in gaps}
        return {name: (half, half) for name, half in halves.items()}


def draw_correlated(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.sqrt(0.2) * rng.normal(size=(ROWS + 1, n)) + np.sqrt(0.8) * rng.normal(size=n)


def draw_scaled(rng: np.random.Generator, n: int, rows: int, scale: float) -> np.ndarray:
    table = rng.normal(size=(ROWS + 1, n))
    table[1 : 1 + rows] *= scale
    return table


NOISE: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=(ROWS + 1, n)),
    "ρ = 0.8": draw_correlated,
    "t₃": lambda rng, n: rng.standard_t(3, size=(ROWS + 1, n)),
    "10 % collapse": lambda rng, n: (
        rng.normal(size=(ROWS + 1, n)) - 10 * (rng.random((ROWS + 1, n)) < 0.1)
    ),
    "sd × 3 in 6 rows": lambda rng, n: draw_scaled(rng, n, 6, 3),
    "sd × 10 in 1 row": lambda rng, n: draw_scaled(rng, n, 1, 10),
}


def build_sample(table: np.ndarray) -> Sample:
    rows = [dict(enumerate(map(float, row))) for row in table]
    return Sample(rows[0], {str(i): row for i, row in enumerate(rows[1:], 1)})


def list_better(rule: ComparisonRule, table: np.ndarray) -> np.ndarray:
    """Which rows' intervals leave out 0."""
    sample = build_sample(table)
    reach = rule.compute_half_widths(sample)
    means = {name: float(sample.compute_differences(name).mean()) for name in sample.rows}
    return np.array([m > reach[k][0] or -m > reach[k][1] for k, m in means.items()])


def measure(rule: ComparisonRule, draw: Draw, n: int, tables: int, size: float = 0) -> float:
    rng, hits = np.random.default_rng(20), 0
    for _ in range(tables):
        table = draw(rng, n)
        table[-1] += size
        better = list_better(rule, table)
        hits += bool(better[-1] if size else better.any())
    return 100 * hits / tables


def main(tables: int = 4000) -> None:
    names = ("holm_t", "dunnett_and_t")
    references = {"Dunnett only": DunnettAlone(), "moderated t": ModeratedT()}
    rules = {**references, **{name: load_rule(name) for name in names}}
    columns = [*NOISE, *(f"power at {size} sd" for size in SIZES)]
    print(f"| rule | seeds | {' | '.join(columns)} |")
    print("| :-- | --: |" + " --: |" * len(columns))
    for label, rule in rules.items():
        for n in SEEDS:
            cells = [f"{measure(rule, draw, n, tables):.1f}" for draw in NOISE.values()]
            cells += [f"{measure(rule, NOISE['normal'], n, tables, size):.0f}" for size in SIZES]
            print(f"| {label} | {n} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
