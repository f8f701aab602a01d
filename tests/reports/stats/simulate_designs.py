"""Variance components, advice, precision over splits and `--decide`: how often they hold.

    python -m tests.reports.stats.simulate_designs [TABLES]

Tables have R rows, J splits and k seeds, an interaction split × method with standard deviation s
and training noise with e, and noise of a seed that all rows share. A share of the runs may fail.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ablate.engine.design_proposals import SHARES, choose_proposal, propose_designs
from ablate.sweep.estimates import Pilot
from reports.kinds import DEFAULT_RULE
from reports.stats.comparison_rule import Sample, load_rule
from reports.stats.planning import (
    Design,
    Family,
    Runs,
    VarianceComponents,
    choose_final_seeds_of_splits,
    draw_half_widths,
    estimate_components,
)
from reports.tables.advice import RANGE

MOST = 20  # seeds a split
RULE = DEFAULT_RULE


class Setting(NamedTuple):
    """rows include the baseline. failed: share of the runs."""

    rows: int
    splits: int
    seeds: int
    split_sd: float
    seed_sd: float = 1.0
    failed: float = 0.0

    @property
    def family(self) -> Family:
        return Family(RULE, self.rows - 1)


SETTINGS = (
    *(Setting(2, 5, 4, split_sd) for split_sd in (0.0, 0.5, 2.0)),
    *(Setting(6, 5, 4, split_sd) for split_sd in (0.0, 0.5, 2.0)),
    Setting(3, 10, 2, 0.3),
    Setting(4, 5, 3, 0.5, failed=0.1),
    Setting(6, 5, 2, 0.0, failed=0.2),
)

PILOTS = {  # (setting, half-width wanted)
    "networks: noise of training": (Setting(6, 5, 4, 0.0), 0.75),
    "heads: noise of classes": (Setting(5, 5, 3, 0.3, 0.3), 1.0),
    "both": (Setting(4, 5, 4, 0.4), 1.6),
    "one comparison": (Setting(2, 5, 4, 0.2), 2.0),
    "seeds of one split": (Setting(3, 5, 1, 0.0), 0.8),
}


def draw_table(rng: np.random.Generator, setting: Setting, seeds: int = 0) -> np.ndarray:
    """Return values by row, split and seed; NaN where the run failed."""
    rows, splits, seeds = setting.rows, setting.splits, seeds or setting.seeds
    values = setting.seed_sd * rng.normal(size=(rows, splits, seeds))
    values += rng.normal(size=(1, splits, seeds)) + 3 * rng.normal(size=(1, splits, 1))
    values += setting.split_sd * rng.normal(size=(rows, splits, 1))
    values[rng.random(values.shape) < setting.failed] = np.nan
    return np.asarray(values)


def to_runs(values: np.ndarray) -> list[Runs]:
    """Return each row's runs, without those that failed."""
    return [
        {
            split: {seed: float(y) for seed, y in enumerate(runs) if np.isfinite(y)}
            for split, runs in enumerate(row)
            if np.isfinite(runs).any()
        }
        for row in values
    ]


def judge_means(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean differences and half-widths that the rule gives the means over seeds."""
    means = values.mean(axis=2)
    rows = [dict(enumerate(map(float, row))) for row in means]
    sample = Sample(rows[0], {str(i): row for i, row in enumerate(rows[1:])})
    reach = load_rule(RULE).compute_half_widths(sample)
    return (means[1:] - means[0]).mean(axis=1), np.array([half for half, _ in reach.values()])


def measure_components(setting: Setting, tables: int) -> dict[str, float]:
    """Return the bias of both components and the coverage of their 90 % limits, in %."""
    rng = np.random.default_rng(5)
    true = (setting.split_sd**2, setting.seed_sd**2)
    estimates, covered = [], []
    for _ in range(tables):
        components = estimate_components(to_runs(draw_table(rng, setting)))
        assert components is not None
        split_variance = components.block_square - components.seed_square / components.seeds
        estimates.append((split_variance, components.seed_square))
        limits = [np.quantile(draws, (0.05, 0.95)) for draws in components.draw()]
        covered.append(
            [low <= value <= high for (low, high), value in zip(limits, true, strict=True)]
        )
    bias, shares = np.mean(estimates, axis=0) - true, 100 * np.mean(covered, axis=0)
    return {
        "bias σ²_split": bias[0],
        "bias σ²_seed": bias[1],
        "limits σ²_split": shares[0],
        "limits σ²_seed": shares[1],
    }


def measure_range(setting: Setting, tables: int, seeds: int = 16) -> float:
    """Return how often, in %, the range printed for `seeds` a split holds what is reached."""
    rng, held = np.random.default_rng(6), 0
    for _ in range(tables):
        components = estimate_components(to_runs(draw_table(rng, setting)))
        assert components is not None
        design = Design(setting.splits, seeds)
        low, _, high = np.quantile(draw_half_widths(components, design, setting.family), RANGE)
        _, halves = judge_means(draw_table(rng, setting._replace(failed=0.0), seeds))
        held += low <= halves[0] <= high
    return 100 * held / tables


def measure_precision(setting: Setting, tables: int, at: int = 8) -> dict[str, float]:
    """Return false verdicts in %, mean seeds, and how often no number of seeds was enough.

    The precision asked for is the typical half-width with `at` seeds a split.
    """
    rng, wrong, seeds, hopeless = np.random.default_rng(7), 0, [], 0
    known = VarianceComponents(
        setting.splits, 1, setting.split_sd**2 + setting.seed_sd**2 / at, 10**6
    )
    wanted = float(np.median(draw_half_widths(known, Design(setting.splits), setting.family)))
    for _ in range(tables):
        values = draw_table(rng, setting, MOST)
        components = estimate_components(to_runs(values[:, :, : setting.seeds]))
        assert components is not None
        number = choose_final_seeds_of_splits(components, setting.family, wanted, MOST)
        hopeless += number is None
        seeds.append(max(setting.seeds, number or 0))
        gaps, halves = judge_means(values[:, :, : seeds[-1]])
        wrong += bool((abs(gaps) > halves).any())
    return {
        "false": 100 * wrong / tables,
        "seeds": float(np.mean(seeds)),
        "hopeless": 100 * hopeless / tables,
    }


def measure_proposals(setting: Setting, wanted: float, tables: int) -> dict[str, float]:
    """Return how often a proposal is made, and how often it reaches its half-width, in %.

    A proposal counts if it was short enough in 90 % of the draws. Splits of the same classes into
    more parts have an interaction that grows with their number.
    """
    rng, reached, cost = np.random.default_rng(8), [], []
    for _ in range(tables):
        components = estimate_components(to_runs(draw_table(rng, setting)))
        assert components is not None
        splits = None if setting.seeds == 1 else setting.splits
        family, configs = setting.family, ({},) * setting.rows
        pilot = Pilot("judged", "test/map_at_r", configs, splits, 0, components, family)
        proposal = choose_proposal(propose_designs(pilot, wanted, SHARES[0]))
        if proposal is not None:
            design = proposal.design
            parts = 1.0 if splits is None else design.blocks / setting.splits
            grown = setting.split_sd * parts**0.5
            planned = setting._replace(splits=design.blocks, split_sd=grown)
            _, halves = judge_means(draw_table(rng, planned, design.seeds))
            reached.append(halves[0] <= wanted)
            cost.append(design.trainings)
    return {
        "proposed": 100 * len(reached) / tables,
        "reached": 100 * float(np.mean(reached)) if reached else 0.0,
        "trainings": float(np.median(cost)) if cost else 0.0,
    }


def print_table(columns: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    print("| " + " | ".join(columns) + " |\n|" + " --: |" * len(columns))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def main(tables: int = 2000) -> None:
    heads = ("rows", "splits", "seeds", "s", "e", "failed")

    def list_components() -> Iterator[Sequence[str]]:
        for setting in SETTINGS:
            found = measure_components(setting, tables).values()
            held = measure_range(setting, tables)
            yield [*(f"{x:g}" for x in setting), *(f"{x:.2f}" for x in found), f"{held:.1f}"]

    names = ("bias σ²_split", "bias σ²_seed", "limits σ²_split", "limits σ²_seed", "range of 16")
    print_table((*heads, *names), list_components())

    def list_precision() -> Iterator[Sequence[str]]:
        for rows in (2, 5):
            for splits in (5, 10):
                for seeds in (2, 3):
                    for split_sd in (0.0, 0.3, 1.0):
                        setting = Setting(rows, splits, seeds, split_sd)
                        found = measure_precision(setting, tables).values()
                        yield [*(f"{x:g}" for x in setting), *(f"{x:.1f}" for x in found)]

    print_table((*heads, "false verdicts", "seeds", "no number"), list_precision())

    def list_proposals() -> Iterator[Sequence[str]]:
        for name, (setting, wanted) in PILOTS.items():
            found = measure_proposals(setting, wanted, tables // 2).values()
            yield [name, *(f"{x:g}" for x in setting), f"{wanted:g}", *(f"{x:.0f}" for x in found)]

    print_table(("pilot", *heads, "wanted", "proposed", "reached", "trainings"), list_proposals())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
