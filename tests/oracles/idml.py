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


def public_product(  # noqa: PLR0917
    s: Tensor, w: Tensor, u: Tensor, gamma: float, tau: float, bias: Tensor | float = 0.0
) -> Tensor:
    """The public code's in classification, to a class weight of no uncertainty: of products, not
    cosines, with ReLU(u) and both norms squared. Its linear layer gives the product with the
    class's bias, and the class weight of the distance as what it makes of unit vectors, which
    is every entry of w plus that bias."""
    product, beta = s.new_zeros(()), s.new_zeros(())
    for i in range(len(s)):
        product = product + s[i] * w[i]
    for i in range(len(u)):
        beta = beta + (u[i] * u[i] if u[i].item() > 0 else u[i] * 0)
    r = (beta + gamma) / norm(s - (w + bias)) ** 2
    return 1 - (1 - product - bias) * torch.exp(-r / tau)


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


# --- Appendix A and Eq. 7, on D(i, j) of items i, j; `labels` are sets ---------------------------


def same(labels: list[set[int]], i: int) -> list[int]:
    return [j for j in range(len(labels)) if j != i and labels[i] & labels[j]]


def other(labels: list[set[int]], i: int) -> list[int]:
    return [j for j in range(len(labels)) if not labels[i] & labels[j]]


def plus(x: Tensor) -> Tensor:
    return x if x.item() > 0 else x * 0


def triplet_semihard(d: Pairwise, labels: list[set[int]], delta: float) -> tuple[Tensor, int]:
    """Eq. 12 summed over (a, p), with the n of Eq. 13; and how many (a, p) have one."""
    total, count = torch.zeros(()), 0
    for a in range(len(labels)):
        for p in same(labels, a):
            beyond = [n for n in other(labels, a) if d(a, p).item() < d(a, n).item()]
            if beyond:
                n = min(beyond, key=lambda n: d(a, n).item())
                total, count = total + plus(d(a, p) - d(a, n) + delta), count + 1
    return total, count


def triplet_all(d: Pairwise, labels: list[set[int]], delta: float) -> tuple[Tensor, int]:
    """Eq. 12 over all triplets."""
    total, count = torch.zeros(()), 0
    for a in range(len(labels)):
        for p in same(labels, a):
            for n in other(labels, a):
                total, count = total + plus(d(a, p) - d(a, n) + delta), count + 1
    return total, count


def proxy_nca(d: Pairwise, labels: list[set[int]], classes: int) -> Tensor:
    """Eq. 14 with −D in the exponents, for +D as printed draws to the other classes; its mean."""
    total = torch.zeros(())
    for i in range(len(labels)):
        near = sum(torch.exp(-d(i, p)) for p in range(classes) if p in labels[i])
        far = sum(torch.exp(-d(i, p)) for p in range(classes) if p not in labels[i])
        total = total - torch.log(near / far)
    return total / len(labels)


def contrastive(d: Pairwise, labels: list[set[int]], delta: float) -> tuple[Tensor, Tensor]:
    """The two sums of Eq. 15, each over ordered pairs."""
    near, far = torch.zeros(()), torch.zeros(())
    for i in range(len(labels)):
        for j in same(labels, i):
            near = near + d(i, j)
        for j in other(labels, i):
            far = far + plus(delta - d(i, j))
    return near, far


def margin(
    d: Pairwise, labels: list[set[int]], drawn: list[tuple[int, int]], xi: float, omega: float
) -> tuple[Tensor, int]:
    """Eq. 7 with + before its second sum, for − as printed draws negatives near; over the negative
    pairs `drawn`. And how many of its summands are above 0."""
    values = [d(i, j) - xi for i in range(len(labels)) for j in same(labels, i)]
    values += [omega - d(i, j) for i, j in drawn]
    return sum((plus(v) for v in values), torch.zeros(())), sum(v.item() > 0 for v in values)


def multi_similarity(  # noqa: PLR0917
    c: Pairwise,
    labels: list[set[int]],
    alpha: float,
    beta: float,
    lam: float,
    epsilon: float,
    printed: bool,
) -> Tensor:
    """Eq. 16 and 17. Corrected: a positive is kept below the largest negative + ε, and what is not
    kept stays out. Printed: − ε, and what is not kept counts as of similarity 0."""
    total = torch.zeros(())
    for i in range(len(labels)):
        positives, negatives = same(labels, i), other(labels, i)
        least = min((c(i, k).item() for k in positives), default=float("inf"))
        most = max((c(i, k).item() for k in negatives), default=-float("inf"))
        shift = -epsilon if printed else epsilon
        up, down = torch.ones(()), torch.ones(())
        for j in positives:
            if c(i, j).item() < most + shift:
                up = up + torch.exp(-alpha * (c(i, j) - lam))
            elif printed:
                up = up + torch.exp(torch.tensor(alpha * lam, dtype=torch.float64))
        for j in negatives:
            if c(i, j).item() > least - epsilon:
                down = down + torch.exp(beta * (c(i, j) - lam))
            elif printed:
                down = down + torch.exp(torch.tensor(-beta * lam, dtype=torch.float64))
        total = total + torch.log(up) / alpha + torch.log(down) / beta
    return total / len(labels)


# --- What is minimised of originals x and mixtures; `loss` is of features and label sets ----------

OfSets = Callable[[Tensor, list[set[int]]], Tensor]


def mixtures(x: Tensor, partner: list[int], share: Tensor) -> Tensor:
    return torch.stack([share * x[i] + (1 - share) * x[partner[i]] for i in range(len(x))])


def separate(
    loss: OfSets, x: Tensor, labels: list[int], partner: list[int], share: Tensor
) -> Tensor:
    """The step of the authors' code: L(originals) + λ L(mixed, y₁) + (1 − λ) L(mixed, y₂)."""
    mixed = mixtures(x, partner, share)
    one, other = [{y} for y in labels], [{labels[j]} for j in partner]
    return loss(x, one) + share * loss(mixed, one) + (1 - share) * loss(mixed, other)


def joint(loss: OfSets, x: Tensor, labels: list[int], partner: list[int], share: Tensor) -> Tensor:
    """Section 3.3: one loss of both, a mixture is of the set {l₁, l₂}."""
    sets = [{y} for y in labels] + [{y, labels[j]} for y, j in zip(labels, partner, strict=True)]
    return loss(torch.cat([x, mixtures(x, partner, share)]), sets)


def joint_weighted(
    loss: OfSets, x: Tensor, labels: list[int], partner: list[int], share: Tensor
) -> Tensor:
    """One loss of both for each label of the mixtures, weighted: neither paper's nor code's."""
    both = torch.cat([x, mixtures(x, partner, share)])
    own, others = [{y} for y in labels], [{labels[j]} for j in partner]
    return share * loss(both, own + own) + (1 - share) * loss(both, own + others)
