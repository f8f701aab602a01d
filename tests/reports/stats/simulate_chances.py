"""Simulate how often what the three chances of a row say comes true.

    python -m tests.reports.stats.simulate_chances

True differences are drawn from −3 to 3 (δ = 1), so that chances of all sizes come up, and standard
deviations from 1/9 to 9, evenly in logarithms: these are the flat priors of the chances. In each
range of a printed chance, the share of rows of which it is true should be the mean of the chance.
With a single standard deviation, δ, the shares show what the priors cost at few blocks.
"""

from __future__ import annotations

import sys

import numpy as np

from reports.stats.paired import compute_chances

EVENTS = ("worse", "within", "better")


def simulate(
    blocks: int, spread: float, tables: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The chances of so many rows, [tables, 3], and which of the three is true, as 0 and 1.

    spread: standard deviations lie between 1 / spread and spread.
    """
    rng = np.random.default_rng(seed)
    chances, events = np.zeros((tables, 3)), np.zeros((tables, 3))
    for i, truth in enumerate(rng.uniform(-3, 3, tables)):
        differences = rng.normal(truth, spread ** rng.uniform(-1, 1), blocks)
        error = differences.std(ddof=1) / blocks**0.5
        found = compute_chances(float(differences.mean()), error, blocks - 1, 1.0)
        assert found is not None
        chances[i], events[i, int(truth > -1) + int(truth > 1)] = found, 1
    return chances, events


def bin_chances(chances: np.ndarray, events: np.ndarray) -> list[tuple[float, float, int]]:
    """(mean chance, share of true events, count) in ten ranges of a chance."""
    places = np.minimum((10 * chances).astype(int), 9)
    return [
        (float(chances[places == k].mean()), float(events[places == k].mean()), int(n))
        for k in range(10)
        if (n := (places == k).sum())
    ]


if __name__ == "__main__":
    tables = int(sys.argv[1]) if sys.argv[1:] else 100_000
    for spread in (9.0, 1.0):
        for blocks in (3, 5, 10):
            chances, events = simulate(blocks, spread, tables)
            for k, event in enumerate(EVENTS):
                rows = bin_chances(chances[:, k], events[:, k])
                shares = " ".join(f"{a:.2f}:{b:.2f}" for a, b, _ in rows)
                print(f"sd 1/{spread:g} to {spread:g}, {blocks} blocks, {event}: {shares}")
