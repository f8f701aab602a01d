"""Error rates and power over classes and seeds, as `reports/stats/README.md` shows them.

    python -m tests.reports.stats.simulate_classes [TABLES]

A row's value at a class and seed is a draw of the class, one of the seed, and a rest of standard
deviation 1; the baseline's are draws of their own. Nothing is true of any row for further classes,
since the draws of the classes have the mean 0. Printed are shares of tables with a false verdict in
%, for one comparison and for five with one baseline; the same of the interval over seeds alone, as
a claim about further classes; the same with Satterthwaite's degrees of freedom; and the power.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from scipy import stats

COUNTS = ((5, 4), (10, 4), (10, 8), (20, 2), (20, 4), (20, 8), (100, 2), (100, 4), (100, 8))
LARGE = (1000, 4)
NOISE = ("normal", "t3")
SIZES = (0.3, 0.6)  # true effects, in standard deviations of a difference between classes


class Setting(NamedTuple):
    """of_class, of_seed: sds of the draws; "even": seeds add as much variance as classes to a mean.

    sizes: whether classes have equal numbers of queries, or log-normal ones.
    """

    classes: int
    seeds: int
    of_class: float
    of_seed: float | str
    noise: str = "normal"
    sizes: str = "equal"
    m: int = 1


# (of_class, of_seed): no scatter of seeds; as much as of classes; no scatter of classes; little of
# each; no rest to speak of
PARTS: tuple[tuple[float, float | str], ...] = (
    *((1.0, 0.0), (1.0, "even"), (0.0, 0.3), (0.3, 0.1), (10.0, "even")),
)


def draw_tables(setting: Setting, tables: int, seed: int = 17) -> tuple[np.ndarray, np.ndarray]:
    """Return differences by table, row, class and seed, and queries by table and class."""
    rng, (classes, seeds) = np.random.default_rng(seed), setting[:2]

    def draw(*shape: int) -> np.ndarray:
        values = (
            rng.standard_t(3, shape) / 3**0.5 if setting.noise == "t3" else rng.normal(size=shape)
        )
        return np.asarray(values)

    of_seed = setting.of_seed
    if isinstance(of_seed, str):
        of_seed = setting.of_class * (seeds / classes) ** 0.5
    rows = setting.m + 1
    values = draw(tables, rows, classes, seeds)
    values += setting.of_class * draw(tables, rows, classes, 1)
    values += of_seed * draw(tables, rows, 1, seeds)
    queries = np.full((tables, classes), 10.0)
    if setting.sizes != "equal":
        queries = np.ceil(5 * np.exp(rng.normal(size=queries.shape)))
    return values[:, 1:] - values[:, :1], queries


def compute_parts(
    differences: np.ndarray, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, its parts a, b and r, the classes' degrees of freedom, and the sd over seeds."""
    classes, seeds = differences.shape[-2:]
    weights = (queries / queries.sum(-1, keepdims=True))[:, None, :, None]
    by_seed = (weights * differences).sum(-2)
    mean = by_seed.mean(-1)
    z = weights / (1 - weights) * (classes - 1) * (differences - mean[..., None, None])
    by_class, of_seeds = z.mean(-1, keepdims=True), z.mean(-2, keepdims=True)
    a = (by_class**2).sum((-2, -1)) / (classes - 1) / classes
    r = ((z - by_class - of_seeds) ** 2).sum((-2, -1)) / (classes - 1) / (seeds - 1)
    df = 1 / (weights**2).sum((-2, -1)) - 1
    return (
        mean,
        a,
        by_seed.var(-1, ddof=1) / seeds,
        r / classes / seeds,
        df,
        by_seed.std(-1, ddof=1),
    )


def compute_half_widths(differences: np.ndarray, queries: np.ndarray, level: float) -> np.ndarray:
    """Return the half widths of `OverClasses`, of many tables at once."""
    _, a, b, r, df, _ = compute_parts(differences, queries)
    t_class, t_seed = (
        stats.t.ppf((1 + level) / 2, freedom) for freedom in (df, differences.shape[-1] - 1)
    )
    wide = np.sqrt(t_class**2 * np.maximum(a - r, 0) + t_seed**2 * b)
    return np.asarray(np.maximum(t_class * np.sqrt(a), wide))


def compute_other_half_widths(
    differences: np.ndarray, queries: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the half widths with Satterthwaite's degrees of freedom, and over seeds alone."""
    _, a, b, r, df, sd = compute_parts(differences, queries)
    seeds = differences.shape[-1]
    variance = np.maximum(np.maximum(a, b), a + b - r)
    freedom = variance**2 / (a**2 / df + b**2 / (seeds - 1) + r**2 / (df * (seeds - 1)))
    satterthwaite = stats.t.ppf((1 + level) / 2, freedom.clip(1)) * np.sqrt(variance)
    return satterthwaite, stats.t.ppf((1 + level) / 2, seeds - 1) * sd / seeds**0.5


def measure(setting: Setting, tables: int, *, size: float = 0) -> tuple[float, float, float]:
    """Return the share of tables, in %, with a verdict on any row, or on the last one that gains.

    The shares are those of `OverClasses`, Satterthwaite's interval and the interval over seeds.
    """
    shares = np.zeros(3)
    step = max(1, 2_000_000 // (setting.classes * setting.seeds * (setting.m + 1)))
    for start in range(0, tables, step):
        count = min(step, tables - start)
        differences, queries = draw_tables(setting, count, seed=17 + start)
        differences[:, -1] += size * 2**0.5 * setting.of_class
        mean, level = compute_parts(differences, queries)[0], 0.95 ** (1 / setting.m)
        halves = (
            compute_half_widths(differences, queries, level),
            *compute_other_half_widths(differences, queries, level),
        )
        for k, half in enumerate(halves):
            called = np.abs(mean) > half
            shares[k] += (called[:, -1] if size else called.any(1)).sum()
    classes, satterthwaite, seeds = (100 * shares / tables).tolist()
    return classes, satterthwaite, seeds


def list_settings(classes: int, seeds: int, m: int) -> list[Setting]:
    """Return the settings of a row of the printed table."""
    return [
        Setting(classes, seeds, *parts, noise=noise, sizes=sizes, m=m)
        for parts in PARTS
        for noise, sizes in (("normal", "equal"), ("t3", "equal"), ("normal", "log-normal"))
    ]


def main(tables: int = 20_000) -> None:
    columns = ["m = 1", "m = 5", "Satterthwaite, m = 1", "Satterthwaite, m = 5"]
    columns += ["seeds alone, m = 1", *(f"power at {size} sd" for size in SIZES)]
    print(f"| classes | seeds | {' | '.join(columns)} |")
    print("| --: | --: |" + " --: |" * len(columns))
    for classes, seeds in (*COUNTS, LARGE):
        count = max(200, tables // 10) if classes >= LARGE[0] else tables
        one, five = (
            np.max([measure(each, count) for each in list_settings(classes, seeds, m)], axis=0)
            for m in (1, 5)
        )
        typical = Setting(classes, seeds, 1.0, 0.1)
        powers = [measure(typical, count, size=size)[0] for size in SIZES]
        cells = [one[0], five[0], one[1], five[1], one[2]]
        texts = [*(f"{cell:.1f}" for cell in cells), *(f"{power:.0f}" for power in powers)]
        print(f"| {classes} | {seeds} | {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
