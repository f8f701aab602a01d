"""Simulate how often what the three chances of a row say comes true.

    python -m tests.reports.stats.simulate_chances

True differences are drawn evenly from −3 to 3 (δ = 1), so that chances of all sizes come up; the
standard deviation is 1. In each range of a printed chance, the share of rows of which it is true
should be the mean of the chance. It cannot be everywhere, as the prior of the standard deviation is
flat too; the shares show what that costs at few blocks.
"""

from __future__ import annotations

import sys

import numpy as np

from reports.stats.paired import compute_chances

EVENTS = ("worse", "within", "better")


def simulate(
    blocks: int, tables: int, truths: tuple[float, float] = (-3.0, 3.0)
) -> tuple[np.ndarray, np.ndarray]:
    """The chances of so many rows, [tables, 3], and which of the three is true, as 0 and 1."""
    rng = np.random.default_rng(0)
    chances, events = np.zeros((tables, 3)), np.zeros((tables, 3))
    for i, truth in enumerate(rng.uniform(*truths, tables)):
        differences = rng.normal(truth, 1.0, blocks)
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
    for blocks in (3, 5, 10):
        chances, events = simulate(blocks, int(sys.argv[1]) if sys.argv[1:] else 100_000)
        for k, event in enumerate(EVENTS):
            rows = bin_chances(chances[:, k], events[:, k])
            print(f"{blocks} blocks, {event}:", " ".join(f"{a:.2f}:{b:.2f}" for a, b, _ in rows))
