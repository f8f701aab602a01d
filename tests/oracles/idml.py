"""IDML's metric as loops over the printed equations, and the losses of its appendix A on it.

In float64, one pair at a time; see `losses.py` for the manner. D and C are functions of two items
i, j, so that a loss is written down as the paper has it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.losses import cosine

Pairwise = Callable[[int, int], Tensor]


def norm(v: Tensor) -> Tensor:
    total = v.new_zeros(())
    for i in range(len(v)):
        total = total + v[i] * v[i]
    return total.sqrt()


def relative(  # noqa: PLR0917
    s1: Tensor, s2: Tensor, u1: Tensor, u2: Tensor, gamma: float, unit: bool
) -> Tensor:
    """Eq. 5: (‖u1 + u2‖ + γ) / ‖s1 − s2‖, of s of unit length where the loss has them so."""
    if unit:
        s1, s2 = s1 / norm(s1), s2 / norm(s2)
    return (norm(u1 + u2) + gamma) / norm(s1 - s2)


def distance(  # noqa: PLR0917
    s1: Tensor, s2: Tensor, u1: Tensor, u2: Tensor, tau: float, gamma: float, unit: bool
) -> Tensor:
    """Eq. 6."""
    r = relative(s1, s2, u1, u2, gamma, unit)
    alpha = norm(s1 / norm(s1) - s2 / norm(s2)) if unit else norm(s1 - s2)
    return alpha * torch.exp(-r / tau)


def similarity(  # noqa: PLR0917
    s1: Tensor, s2: Tensor, u1: Tensor, u2: Tensor, tau: float, gamma: float
) -> Tensor:
    """Eq. 8 and 19."""
    r = relative(s1, s2, u1, u2, gamma, unit=True)
    return 1 - (1 - cosine(s1, s2)) * torch.exp(-r / tau)


def dissimilarity(  # noqa: PLR0917
    s1: Tensor, s2: Tensor, u1: Tensor, u2: Tensor, tau: float, gamma: float
) -> Tensor:
    """Eq. 20."""
    r = relative(s1, s2, u1, u2, gamma, unit=True)
    return cosine(s1, s2) * torch.exp(-r / tau)


def public_relative(s: Tensor, p: Tensor, u: Tensor, gamma: float) -> Tensor:
    """The public code's, to a proxy of no uncertainty: s and u of unit length, all squared."""
    gap = norm(s / norm(s) - p)
    return (norm(u / norm(u)) ** 2 + gamma) / gap**2


def proxy_anchor(
    c: Pairwise, labels: list[set[int]], classes: int, alpha: float, delta: float
) -> Tensor:
    """Eq. 18; c(i, p) of item i and the proxy of class p."""
    up_total, down_total, positives = torch.zeros(()), torch.zeros(()), 0
    for p in range(classes):
        up, down = torch.ones(()), torch.ones(())
        for i in range(len(labels)):
            if p in labels[i]:
                up = up + torch.exp(-alpha * (c(i, p) - delta))
            else:
                down = down + torch.exp(alpha * (c(i, p) + delta))
        positives += any(p in each for each in labels)
        up_total, down_total = up_total + torch.log(up), down_total + torch.log(down)
    return up_total / positives + down_total / classes


def softmax(c: Pairwise, labels: list[set[int]], classes: int, temperature: float) -> Tensor:
    """Cross-entropy of C/T, spread evenly over a label set.

    Eq. 9 as printed leaves the positives out of its denominator; the classification loss that
    the paper names has all classes there, and so does this.
    """
    total = torch.zeros(())
    for i, mine in enumerate(labels):
        exps = [torch.exp(c(i, p) / temperature) for p in range(classes)]
        for y in mine:
            total = total - torch.log(exps[y] / sum(exps)) / len(mine)
    return total / len(labels)
