"""A made-up search, and the best of its cells trained again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reports.frame import Frame
from tests.reports.made import Row, assemble

LOW = {0: 0.30, 1: 0.50, 2: 0.40, 3: 0.45}  # cell of `heads` → value
HIGH = {1: 0.60, 2: 0.70, 3: 0.62}
RANKS = {1: 1, 3: 2, 2: 3}  # cell of `heads` → its rank


def spread(middle: float, seed: int) -> float:
    return middle + 0.01 * (seed - 1)


def made(
    high: Callable[[int, int], float | None] = lambda i, s: spread(HIGH[i], s),
    *,
    seeds: int = 3,
    **study: Any,
) -> Frame:
    """`heads`, a search of four cells of two seeds, and `network`, its best three."""
    rows: list[Row] = []

    def put(study: str, cell: str, at: tuple[int, int], coords: Any, value: float | None) -> None:
        rows.append(Row(study, cell, coords, *at, value, f"-{study}{at[0]}-{at[1]}"))

    for i, middle in LOW.items():
        for seed in range(2):
            lr = {"optimizer.lr": 10.0**-i}
            put("heads", f"{i:04d}", (i, seed), lr, spread(middle, seed))
    if "neutral" in study:
        for seed in range(seeds):
            put("network", "neutral", (3, seed), {"neutral": "yes"}, spread(0.65, seed))
    for i, rank in RANKS.items():
        coords = {"rank": rank, "source": f"{i:04d}", "optimizer.lr": 10.0**-i}
        for seed in range(seeds):
            put("network", f"rank={rank}", (rank - 1, seed), coords, high(i, seed))
    network = {"design": "promote", "of": "heads", "best": 3, **study}
    return assemble(rows, {"heads": {"design": "search"}, "network": network})
