"""Error rates where seeds are added until a row is better or worse, for `reports/stats/README.md`.

    python -m tests.reports.stats.simulate_looks [TABLES]

Looks at 3, 5, 8, 10, 15 and 20 seeds, of which the first decided one is the last. Printed is the
share of tables in %: with a false verdict, if no row has a true effect; and in which the first row
is better by a true effect of 1.5 standard deviations of a run.
"""

from __future__ import annotations

import sys

import numpy as np

from reports.kinds import DEFAULT_RULE
from reports.stats.blocks import compute_look_level
from reports.stats.comparison_rule import judge, load_rule
from tests.reports.stats.simulate import build_sample

SEEDS = (3, 5, 8, 10, 15, 20)
PLANS: dict[str, int | None] = {
    "each at 95 %": None,
    "one planned": 1,
    "three planned": 3,
    "six planned": 6,
}


def find_call(table: np.ndarray, planned: int | None) -> str:
    """Return the call of the first look at which the first row, or a null's any row, is decided."""
    for look, seeds in enumerate(SEEDS, 1):
        level = 0.95 if planned is None else compute_look_level(look, planned)
        sample = build_sample(table[:, :seeds], level=level, planned=seeds)
        judged = judge(load_rule(DEFAULT_RULE), sample, smallest=1e-9)
        decided = [each.call for each in judged.values() if each.call in ("better", "worse")]
        if decided:
            return str(judged["1"].call if judged["1"].call in decided else decided[0])
    return "open"


def measure(rows: int, planned: int | None, tables: int, size: float = 0.0) -> float:
    """Return the share of tables in %: with any verdict or, given a size, in which row 1 is better.

    With an effect, only the row that has it is looked at.
    """
    rng, hits = np.random.default_rng(rows), 0
    for _ in range(tables):
        table = rng.normal(size=(rows + 1, SEEDS[-1]))
        table[1] += size
        call = find_call(table, planned)
        hits += call == "better" if size else call != "open"
    return 100 * hits / tables


def main(tables: int = 2000) -> None:
    print("| looks | false, m = 1 | false, m = 4 | power, m = 1 | power, m = 4 |")
    print("| :-- | --: | --: | --: | --: |")
    for name, planned in PLANS.items():
        false = [f"{measure(rows, planned, tables):.1f}" for rows in (1, 4)]
        power = [f"{measure(rows, planned, tables // 4, 1.5):.0f}" for rows in (1, 4)]
        print(f"| {name} | {' | '.join([*false, *power])} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
