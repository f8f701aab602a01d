"""The pair losses as loops over the printed equations, in float64.

As in `losses.py`: scalars of torch for autograd; nothing vectorised, masked or stabilised, and
nothing shared with the code under test. `labels` are lists of sets; two items are of one class if
their sets meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Distance = Callable[[int, int], Tensor]
Labels = list[set[int]]


def distances(x: Tensor, *, squared: bool, normalize: bool) -> Distance:
    """‖i − j‖ or ‖i − j‖² of the rows of x; 0 without gradient between equal rows."""
    rows = [row / row.square().sum().sqrt() for row in x] if normalize else list(x)

    def between(i: int, j: int) -> Tensor:
        square = (rows[i] - rows[j]).square().sum()
        if squared:
            return square
        return square.sqrt() if square.item() > 1e-12 else torch.zeros_like(square)

    return between


def positives(labels: Labels, a: int) -> list[int]:
    return [p for p in range(len(labels)) if p != a and labels[a] & labels[p]]


def negatives(labels: Labels, a: int) -> list[int]:
    return [n for n in range(len(labels)) if not labels[a] & labels[n]]


def average(values: list[Tensor], rule: str, zero: Tensor) -> Tensor:
    kept = [v for v in values if v.item() > 0] if rule == "active" else values
    return sum(kept, zero) / max(len(kept), 1)


def triplets(labels: Labels, d: Distance, mining: str, margin: float) -> list[tuple[int, int, int]]:
    found = []
    for a in range(len(labels)):
        for p in positives(labels, a):
            beyond = [n for n in negatives(labels, a) if d(a, n).item() > d(a, p).item()]
            if mining == "all":
                found += [(a, p, n) for n in negatives(labels, a)]
            elif mining == "semihard" and beyond:
                found.append((a, p, min(beyond, key=lambda n: d(a, n).item())))
            elif mining == "semihard_all":
                found += [(a, p, n) for n in beyond if d(a, n).item() - d(a, p).item() < margin]
    return found


def triplet(
    chosen: list[tuple[int, int, int]], d: Distance, margin: float, rule: str, zero: Tensor
) -> Tensor:
    """DVML's Eq. 2 and 4: [α + D(a, p) − D(a, n)]₊, averaged."""
    values = [margin + d(a, p) - d(a, n) for a, p, n in chosen]
    return average([v if v.item() > 0 else v * 0 for v in values], rule, zero)


def margin_loss(
    chosen: list[tuple[int, int, int]],
    d: Distance,
    alpha: float,
    beta: Callable[[int], Tensor],
    zero: Tensor,
) -> Tensor:
    """Wu et al.: [α + D_ap − β]₊ and [α + β − D_an]₊ over the number of those above 0."""
    values = []
    for a, p, n in chosen:
        values += [alpha + d(a, p) - beta(a), alpha + beta(a) - d(a, n)]
    return average([v for v in values if v.item() > 0], "active", zero)


def inverse_density(d: float, dim: int) -> float:
    """1/q(d), Wu et al., section 4."""
    return 1 / (d ** (dim - 2) * (1 - d * d / 4) ** ((dim - 3) / 2))


def sphere_density(d: float, dim: int) -> float:
    """q(d) with its constant, for distances of uniform points on the sphere in `dim`
    dimensions: the area of the zone between d and d + dd."""
    area = math.gamma(dim / 2) / (math.sqrt(math.pi) * math.gamma((dim - 1) / 2))
    return area * d * (d * math.sqrt(1 - d * d / 4)) ** (dim - 3)
