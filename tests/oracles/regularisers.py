"""HIER and the coding rate as loops over their equations, in float64; see `losses.py`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.oracles.losses import product
from tests.oracles.nir import unit

Triplet = tuple[int, int, int]


def into_ball(v: Tensor, c: float, clip: float) -> Tensor:
    """The exponential map at the origin of v, shortened to the length `clip`."""
    length = product(v, v).sqrt()
    if length.item() > clip:
        v, length = v * clip / length, length.new_tensor(clip)
    return torch.tanh(math.sqrt(c) * length) * v / (math.sqrt(c) * length)


def geodesic(u: Tensor, v: Tensor, c: float, clip: float) -> Tensor:
    """(2/√c) artanh(√c ‖(−x) ⊕ y‖) with Möbius addition; 0 of a point and itself."""
    if torch.equal(u, v):
        return u.new_zeros(())
    x, y = -into_ball(u, c, clip), into_ball(v, c, clip)
    xy, xx, yy = product(x, y), product(x, x), product(y, y)
    total = ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy)
    return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * product(total, total).sqrt())


def candidates(
    distance: list[list[float]], classes: list[set[int]] | None, neighbours: int
) -> dict[int, tuple[set[int], set[int]]]:
    """Of each point with two mutual neighbours or more: these, and all others but itself."""
    n, near = len(distance), []
    for i in range(n):
        first = [j for j in range(n) if classes is not None and classes[i] & classes[j]]
        rest = [j for j in range(n) if j not in first]
        ranked = [*sorted(first, key=distance[i].__getitem__)]
        near.append((ranked + sorted(rest, key=distance[i].__getitem__))[:neighbours])
    results = {}
    for i in range(n):
        mutual = {j for j in range(n) if j != i and j in near[i] and i in near[j]}
        others = set(range(n)) - mutual - {i}
        if len(mutual) > 1 and others:
            results[i] = (mutual, others)
    return results


def hierarchy(
    d: list[list[Tensor]],
    triplets: list[Triplet],
    uniforms: tuple[Tensor, Tensor],
    tau: float,
    margin: float,
) -> Tensor:
    """R with the noise −log(−log u); the choice is one-hot with the gradient of its softmax."""
    total = d[0][0].new_zeros(())
    for number, (i, j, k) in enumerate(triplets):
        chosen, weights = [], []
        for uniform, points in zip(uniforms, ((i, j), (i, j, k)), strict=True):
            logits = []
            for h in range(len(d[0])):
                farthest = d[points[0]][h]
                for point in points[1:]:
                    farthest = torch.maximum(farthest, d[point][h])
                gumbel = -math.log(-math.log(float(uniform[number, h])))
                logits.append(gumbel - farthest / tau)
            best = max(range(len(logits)), key=lambda h: logits[h].item())
            exps = [torch.exp(x - logits[best].detach()) for x in logits]
            soft = [e / sum(exps) for e in exps]
            weights.append([float(h == best) + s - s.detach() for h, s in enumerate(soft)])
            chosen.append(best)
        if chosen[0] == chosen[1]:
            continue
        for point, sign in ((i, 1), (j, 1), (k, -1)):
            gap = total.new_zeros(())
            for h, (a, b) in enumerate(zip(*weights, strict=True)):
                gap = gap + d[point][h] * (a - b)
            value = sign * gap + margin
            total = total + (value if value.item() > 0 else 0 * value)
    return total / len(triplets)


def coding_rate(points: list[Tensor], factor: float) -> Tensor:
    """½ log det(I + factor Σ_q q qᵀ) by elimination, of points of unit length."""
    q, size = [unit(point) for point in points], len(points[0])
    rows = [
        [float(a == b) + factor * sum(x[a] * x[b] for x in q) for b in range(size)]
        for a in range(size)
    ]
    total = points[0].new_zeros(())
    for a in range(size):
        total = total + torch.log(rows[a][a]) / 2
        for b in range(a + 1, size):
            share = rows[b][a] / rows[a][a]
            rows[b] = [x - share * y for x, y in zip(rows[b], rows[a], strict=True)]
    return total
