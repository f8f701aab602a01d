"""Error rates where the worst runs fail, as `reports/stats/README.md` shows them.

    python -m tests.reports.stats.simulate_failures [TABLES]

No row has a true effect. Runs that are more than one standard deviation below their row's mean
fail: of all rows but the baseline, of the baseline alone, or of all rows. Share of tables with a
false verdict, in %, without the failed runs, with the worst value for them, and by `failed: worst`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np

from reports.kinds import DEFAULT_RULE
from reports.stats.comparison_rule import Sample, decide, join_intervals, judge, load_rule

WHO = {"rows": slice(1, None), "baseline": slice(0, 1), "all": slice(None)}
WAYS = ("left out", "worst", "failed: worst")


def build_sample(table: np.ndarray) -> Sample:
    rows = [
        {block: float(value) for block, value in enumerate(row) if np.isfinite(value)}
        for row in table
    ]
    return Sample(rows[0], {str(i): row for i, row in enumerate(rows[1:])}, planned=table.shape[1])


def judge_with_failures(table: np.ndarray, rule: str = DEFAULT_RULE) -> Mapping[str, bool]:
    """Whether some row of a table (NaN: failed) is better or worse, by each way to judge it."""
    worst = np.where(np.isnan(table), np.nanmin(table), table)
    results = [judge(load_rule(rule), build_sample(t), smallest=1e-9) for t in (table, worst)]
    calls = [[judged.call for judged in result.values()] for result in results]
    joined = [
        decide(join_intervals(b.interval, a.interval), 1e-9, lower_is_better=False).call
        for a, b in zip(*(result.values() for result in results), strict=True)
        if a.interval and b.interval
    ]
    return {
        way: bool({"better", "worse"} & {*found})
        for way, found in zip(WAYS, [*calls, joined], strict=True)
    }


def measure(who: str, rows: int, seeds: int, correlation: float, tables: int) -> dict[str, float]:
    """Return the share of tables with a false verdict in %, by way."""
    rng, wrong = np.random.default_rng(rows * 100 + seeds), dict.fromkeys(WAYS, 0)
    for _ in range(tables):
        table = np.sqrt(correlation) * rng.normal(size=seeds)
        table = table + np.sqrt(1 - correlation) * rng.normal(size=(rows + 1, seeds))
        failing = table[WHO[who]]
        failing[failing < -1] = np.nan
        for way, is_wrong in judge_with_failures(table).items():
            wrong[way] += is_wrong
    return {way: 100 * count / tables for way, count in wrong.items()}


def main(tables: int = 2000) -> None:
    print(f"| failing | correlation | rows | seeds | {' | '.join(WAYS)} |")
    print("| :-- | --: | --: | --: |" + " --: |" * len(WAYS))
    for who in WHO:
        for correlation in (0.0, 0.8):
            for rows in (1, 4, 10):
                for seeds in (5, 10, 20):
                    shares = measure(who, rows, seeds, correlation, tables)
                    texts = " | ".join(f"{share:.1f}" for share in shares.values())
                    print(f"| {who} | {correlation} | {rows} | {seeds} | {texts} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
