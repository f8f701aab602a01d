"""Error rates and power over several searches, as `reports/stats/README.md` shows them.

    python -m tests.reports.stats.simulate_searches [TABLES]

A row's value in search k at split b is a draw of the search plus a draw of the split, which has
standard deviation 1. Nothing is true of any row. Printed are, for K searches, the largest share of
tables with a false verdict in % over all settings; the same of the rule that sees the means alone;
and the power for one row with a true effect, at 10 splits and a searches' sd of 0.5.
"""

from __future__ import annotations

import itertools
import sys
from typing import NamedTuple

import numpy as np

from tests.reports.stats import simulate

SEARCHES = (2, 3, 5)
COMPARISONS, SPLITS, RATIOS, WILD = (
    (1, 2, 5, 7),
    (5, 10),
    (0.0, 0.5, 1.0, 2.0, 4.0),
    (1, 3, 10, -3, -10),
)
SIZES = ((1, 2), (1, 4), (5, 2), (5, 4))  # comparisons, true effect


class Setting(NamedTuple):
    """ratio: the searches' sd. wild: by how much more one row's searches scatter, or the baseline's
    (below 0)."""

    m: int
    splits: int
    searches: int
    ratio: float
    wild: float = 1


def draw_tables(setting: Setting, tables: int, seed: int = 21) -> np.ndarray:
    """Return values by table, search, row and split."""
    rng, rows = np.random.default_rng(seed), setting.m + 1
    scatter = setting.ratio * rng.normal(size=(tables, setting.searches, rows, 1))
    scatter[:, :, 1 if setting.wild > 0 else 0] *= abs(setting.wild)
    return scatter + rng.normal(size=(tables, 1, rows, setting.splits))


def compute_half_widths(values: np.ndarray, *, widen: bool = True) -> np.ndarray:
    """Return the half widths of the default rule over searches, of many tables at once."""
    halves = simulate.compute_half_widths(values.mean(axis=1))
    if not widen:
        return halves
    searches = values.mean(axis=3).swapaxes(1, 2)
    return np.asarray(np.hypot(halves, simulate.compute_half_widths(searches)))


def measure(setting: Setting, tables: int, *, size: float = 0, widen: bool = True) -> float:
    """Return the share of tables, in %, with a false verdict or (with `size`) that see a gain."""
    values = draw_tables(setting, tables)
    values[:, :, -1] += size
    means = values.mean(axis=(1, 3))
    called = np.abs(means[:, 1:] - means[:, :1]) > compute_half_widths(values, widen=widen)
    return 100 * float(np.mean(called[:, -1] if size else called.any(axis=1)))


def main(tables: int = 20_000) -> None:
    names = [f"{'one row' if wild > 0 else 'baseline'}'s searches × {abs(wild)}" for wild in WILD]
    columns = ["rows alike", *names[1:], "h alone"]
    columns += [f"power at {size} sd, m = {m}" for m, size in SIZES]
    print(f"| searches | {' | '.join(columns)} |")
    print("| --: |" + " --: |" * len(columns))
    for count in SEARCHES:
        cells = []
        for wild in WILD:
            settings = itertools.product(COMPARISONS[wild != 1 :], SPLITS, [count], RATIOS, [wild])
            shares = (measure(Setting(*setting), tables) for setting in settings)
            cells.append(f"{max(shares):.1f}")
        cells.append(f"{measure(Setting(7, 10, count, 4.0), tables, widen=False):.0f}")
        for m, size in SIZES:
            cells.append(f"{measure(Setting(m, 10, count, 0.5), tables, size=size):.0f}")
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
