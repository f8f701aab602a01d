"""The ranking losses and SupCon as loops over their equations, in float64.

As in `pairs.py`: scalars of torch for autograd; nothing vectorised, masked or stabilised, and
nothing shared with the code under test but the loops of `pairs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.pairs import Distance, Labels, average, negatives, positives


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^−x), of one number."""
    return 1 / (1 + torch.exp(-x)) if x.item() > 0 else 1 - 1 / (1 + torch.exp(x))


def mean_over_queries(values: list[Tensor], zero: Tensor) -> Tensor:
    return sum(values, zero) / max(len(values), 1)


def recall_at_k(
    labels: Labels,
    s: Distance,
    numbers: tuple[tuple[int, ...], float, float],
    own: bool,
    zero: Tensor,
) -> Tensor:
    """Patel et al.'s code. numbers: all k, τ₂ and τ₁. own: the list of a query has the query."""
    ks, step, rank_step = numbers
    losses = []
    for q in range(len(labels)):
        pos = positives(labels, q)
        if not pos:
            continue
        listed = [j for j in range(len(labels)) if own or j != q]
        ranks = [
            1 + sum((sigmoid((s(q, j) - s(q, x)) / step) for j in listed if j != x), zero)
            for x in pos
        ]
        recall = zero
        for k in ks:
            hits = sum((sigmoid((k - rank) / rank_step) for rank in ranks), zero)
            hits = zero + k if hits.item() > k else hits
            recall = recall + hits / min(k, len(pos))
        losses.append(1 - recall / len(ks))
    return mean_over_queries(losses, zero)


def with_virtual_items(x: Tensor, labels: Labels, shares: Tensor) -> tuple[Tensor, Labels]:
    """SiMix of unit rows: below them w z_a + (1 − w) z_b of each pair a < b, w = shares[a, b]."""
    rows, extended = [row / row.square().sum().sqrt() for row in x], list(labels)
    for a in range(len(labels)):
        for b in positives(labels, a):
            if a < b:
                rows.append(shares[a, b] * rows[a] + (1 - shares[a, b]) * rows[b])
                extended.append(labels[a])
    return torch.stack(rows), extended


def average_precision_loss(
    labels: Labels, precision: Callable[[int, int, list[int]], Tensor], own: bool, zero: Tensor
) -> Tensor:
    """1 − mean over items i of the mean over positives p of precision(i, p, positives of i).

    own: an item is a positive in its own list.
    """
    losses = []
    for i in range(len(labels)):
        pos = positives(labels, i)
        if pos:
            pos = [*pos, i] if own else pos
            losses.append(1 - sum((precision(i, p, pos) for p in pos), zero) / len(pos))
    return mean_over_queries(losses, zero)


def smooth_ap(labels: Labels, s: Distance, temperature: float, own: bool, zero: Tensor) -> Tensor:
    """Brown et al.'s code. own: an item is a positive in its own list, as there."""

    def rank(i: int, p: int, items: list[int]) -> Tensor:
        steps = (sigmoid((s(i, j) - s(i, p)) / temperature) for j in items if j != p)
        return 1 + sum(steps, zero)

    def precision(i: int, p: int, pos: list[int]) -> Tensor:
        return rank(i, p, pos) / rank(i, p, pos + negatives(labels, i))

    return average_precision_loss(labels, precision, own, zero)


def bound_step(t: Tensor, numbers: tuple[float, float, float, float, float | None]) -> Tensor:
    """H⁻ of Ramzi et al. numbers: τ, ρ, δ, h, o."""
    temperature, slope, delta, start, offset = numbers
    if t.item() <= 0:
        return sigmoid(t / temperature)
    if t.item() <= delta:
        return sigmoid(t / temperature) + start
    if offset is None:
        offset = 1 / (1 + math.exp(-delta / temperature)) + start
    return slope * (t - delta) + offset


def sup_ap(
    labels: Labels,
    s: Distance,
    numbers: tuple[float, float, float, float, float | None],
    own: bool,
    zero: Tensor,
) -> Tensor:
    def precision(i: int, p: int, pos: list[int]) -> Tensor:
        before = 1 + sum(s(i, j).item() >= s(i, p).item() for j in pos if j != p)
        worse = (bound_step(s(i, n) - s(i, p), numbers) for n in negatives(labels, i))
        return before / (before + sum(worse, zero))

    return average_precision_loss(labels, precision, own, zero)


def calibration(
    labels: Labels, s: Distance, margins: tuple[float, float], rule: str, zero: Tensor
) -> Tensor:
    """Ramzi et al.'s contrastive term of similarities. margins: a and b."""

    def hinge(x: Tensor) -> Tensor:
        return x if x.item() > 0 else 0 * x

    items = range(len(labels))
    near = [hinge(margins[0] - s(i, j)) for i in items for j in positives(labels, i)]
    far = [hinge(s(i, j) - margins[1]) for i in items for j in negatives(labels, i)]
    return average(near, rule, zero) + average(far, rule, zero)


def supcon(labels: Labels, s: Distance, temperature: float, zero: Tensor) -> Tensor:
    """Khosla et al., Eq. 2, averaged over anchors."""
    losses = []
    for i in range(len(labels)):
        pos = positives(labels, i)
        if not pos:
            continue
        below = [torch.exp(s(i, a) / temperature) for a in range(len(labels)) if a != i]
        terms = [torch.log(torch.exp(s(i, p) / temperature) / sum(below, zero)) for p in pos]
        losses.append(-sum(terms, zero) / len(pos))
    return mean_over_queries(losses, zero)
