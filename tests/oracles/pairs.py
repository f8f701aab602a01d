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


def contrastive(
    labels: Labels,
    d: Distance,
    margins: tuple[float, float],
    reading: tuple[str, str],
    zero: Tensor,
) -> Tensor:
    """IDML's Eq. 15 ("linear") and Hadsell et al.'s Eq. 4 ("squared"), each sum averaged.
    margins: m⁺ and m. reading: form, and which pairs an average is over."""
    form, rule = reading

    def cost(excess: Tensor) -> Tensor:
        hinge = excess if excess.item() > 0 else excess * 0
        return hinge if form == "linear" else 0.5 * hinge * hinge

    items = range(len(labels))
    near = [cost(d(i, j) - margins[0]) for i in items for j in positives(labels, i)]
    far = [cost(margins[1] - d(i, j)) for i in items for j in negatives(labels, i)]
    return average(near, rule, zero) + average(far, rule, zero)


def cosines(x: Tensor) -> Distance:
    rows = [row / row.square().sum().sqrt() for row in x]
    return lambda i, j: (rows[i] * rows[j]).sum()


def multi_similarity(
    labels: Labels,
    s: Distance,
    numbers: tuple[float, float, float, float],
    mining: str,
    zero: Tensor,
) -> Tensor:
    """Wang et al.; IDML's Eq. 17 with its Eq. 16 to the letter. numbers: α, β, λ, ε."""
    alpha, beta, threshold, epsilon = numbers
    shift = -epsilon if mining == "idml_printed" else epsilon
    total = zero
    for i in range(len(labels)):
        pos, neg = positives(labels, i), negatives(labels, i)
        nearest = max((s(i, k).item() for k in neg), default=-math.inf)
        farthest = min((s(i, k).item() for k in pos), default=math.inf)
        hard_pos = [k for k in pos if s(i, k).item() < nearest + shift]
        hard_neg = [k for k in neg if s(i, k).item() > farthest - epsilon]
        if mining == "none":
            hard_pos, hard_neg = pos, neg
        near = [s(i, k) for k in hard_pos]
        far = [s(i, k) for k in hard_neg]
        if mining == "idml_printed":  # the others stay, with a similarity of 0
            near += [zero] * (len(pos) - len(hard_pos))
            far += [zero] * (len(neg) - len(hard_neg))
        up = sum((torch.exp(-alpha * (c - threshold)) for c in near), zero)
        down = sum((torch.exp(beta * (c - threshold)) for c in far), zero)
        total = total + torch.log(1 + up) / alpha + torch.log(1 + down) / beta
    return total / len(labels)


def fastap(labels: Labels, squared: Distance, bins: int, zero: Tensor) -> Tensor:
    """Cakir et al.: 1 − 1/N⁺ Σ_j h⁺_j H⁺_j / H_j, soft counts in the bins of [0, 4]."""
    width, losses = 4 / bins, []
    for i in range(len(labels)):
        pos, neg = positives(labels, i), negatives(labels, i)
        if not pos:
            continue
        precision, before, before_all = zero, zero, zero
        for j in range(bins + 1):

            def share(k: int, i: int = i, centre: float = j * width) -> Tensor:
                return (1 - (squared(i, k) - centre).abs() / width).clamp(min=0)

            here = sum((share(k) for k in pos), zero)
            before = before + here
            before_all = before_all + here + sum((share(k) for k in neg), zero)
            if before_all.item() > 0:
                precision = precision + here * before / before_all
        losses.append(1 - precision / len(pos))
    return sum(losses, zero) / max(len(losses), 1)


def images_of(classes: list[int]) -> list[list[int]]:
    """The items of each class, in the order of the batch."""
    return [[i for i, c in enumerate(classes) if c == wanted] for wanted in sorted(set(classes))]


def n_pair(x: Tensor, classes: list[int], zero: Tensor) -> Tensor:
    """Sohn's Eq. 7, one batch of pairs for each k: of M images the k-th and the (⌊M/2⌋ + k)-th."""
    losses = []
    members = images_of(classes)
    for k in range(len(classes)):
        pairs = [(m[k], m[len(m) // 2 + k]) for m in members if k < len(m) // 2]
        for a, p in pairs:
            others = [
                torch.exp((x[a] * x[q]).sum() - (x[a] * x[p]).sum()) for b, q in pairs if b != a
            ]
            losses.append(torch.log(1 + sum(others, zero)))
    return sum(losses, zero) / max(len(losses), 1)


def pairwise_entropy(s: Distance, classes: list[int], temperature: float, zero: Tensor) -> Tensor:
    """Ermolov et al.'s Eq. 6 over all ordered pairs of views (u, v), averaged over pairs."""
    losses = []
    members = images_of(classes)
    for u in range(len(classes)):
        for v in range(len(classes)):
            first = [m[u] for m in members if u < len(m)]
            second = [m[v] for m in members if v < len(m)]
            for m in members:
                if u == v or max(u, v) >= len(m):
                    continue
                i, j = m[u], m[v]
                below = [torch.exp(s(i, k) / temperature) for k in first + second if k != i]
                losses.append(-torch.log(torch.exp(s(i, j) / temperature) / sum(below, zero)))
    return sum(losses, zero) / max(len(losses), 1)


def summed_over_views(s: Distance, classes: list[int], temperature: float, zero: Tensor) -> Tensor:
    """As the authors' code: classes of M images each; for each ordered pair of views (u, v) the
    mean over classes of a cross-entropy over 2N − 1 items, added up."""
    members, total = images_of(classes), zero
    for u in range(len(members[0])):
        for v in range(len(members[0])):
            if u == v:
                continue
            for n in range(len(members)):
                i = members[n][u]
                exps = [torch.exp(s(i, m[v]) / temperature) for m in members]
                exps += [torch.exp(s(i, m[u]) / temperature) for m in members if m[u] != i]
                total = total - torch.log(exps[n] / sum(exps, zero)) / len(members)
    return total


def mobius_distance(a: Tensor, b: Tensor, c: float, clip: float | None) -> Tensor:
    """(2/√c) artanh(√c ‖(−x) ⊕ y‖) of x = exp₀(a), y = exp₀(b), a and b clipped first: Möbius
    addition as HypViT's section 3.1 has it. 0 without gradient between equal vectors, whose sum
    is nothing but rounding."""
    if torch.equal(a, b):
        return 0 * (a + b).sum()

    def into_ball(v: Tensor) -> Tensor:
        length = v.square().sum().sqrt()
        if clip is not None and length.item() > clip:
            v, length = v * clip / length, length * clip / length
        root = math.sqrt(c)
        return v * torch.tanh(root * length) / (root * length)

    x, y = -into_ball(a), into_ball(b)
    xy, xx, yy = (x * y).sum(), x.square().sum(), y.square().sum()
    added = ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy)
    return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * added.square().sum().sqrt())
