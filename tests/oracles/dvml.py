"""DVML's terms as loops over Eq. 8 to 10 of the paper, in float64; see `losses.py` for the manner.

A sample is drawn as ẑ = z_I + μ + σ ε with ε given, [T][B][D].
"""

from __future__ import annotations

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[F] → [O], one product at a time."""
    rows = []
    for o in range(len(weight)):
        total = bias[o]
        for i in range(len(x)):
            total = total + weight[o, i] * x[i]
        rows.append(total)
    return torch.stack(rows)


def kl_printed(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Eq. 8: 1/(2B) Σ_i Σ_j (1 + log σ² − μ² − σ²), which is −KL."""
    total = mean.new_zeros(())
    for i in range(len(mean)):
        for j in range(mean.shape[1]):
            m, lv = mean[i, j], log_variance[i, j]
            total = total + 1 + lv - m * m - torch.exp(lv)
    return total / (2 * len(mean))


def kl_by_dimension(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = −log σ + (σ² + μ² − 1)/2 of one dimension, mean over B and D."""
    total = mean.new_zeros(())
    for i in range(len(mean)):
        for j in range(mean.shape[1]):
            m, sigma = mean[i, j], torch.sqrt(torch.exp(log_variance[i, j]))
            total = total - torch.log(sigma) + (sigma * sigma + m * m - 1) / 2
    return total / (len(mean) * mean.shape[1])


def samples(invariant: Tensor, mean: Tensor, log_variance: Tensor, noise: Tensor) -> list[Tensor]:
    """T batches [B, D] of ẑ."""
    batches = []
    for draw in noise:
        rows = []
        for i in range(len(invariant)):
            entries = [
                invariant[i, j]
                + mean[i, j]
                + torch.sqrt(torch.exp(log_variance[i, j])) * draw[i, j]
                for j in range(invariant.shape[1])
            ]
            rows.append(torch.stack(entries))
        batches.append(torch.stack(rows))
    return batches


def reconstruction(
    target: Tensor, generated: list[Tensor], layers: list[tuple[Tensor, Tensor]], power: int
) -> Tensor:
    """Eq. 9: 1/(TB) Σ_i Σ_t ‖x_i − x̂_it‖^power, x̂ = W₂ tanh(W₁ ẑ + b₁) + b₂; power 1 or 2."""
    (w1, b1), (w2, b2) = layers
    total = target.new_zeros(())
    for batch in generated:
        for i in range(len(batch)):
            made = linear(torch.tanh(linear(batch[i], w1, b1)), w2, b2)
            square = target.new_zeros(())
            for f in range(len(made)):
                square = square + (target[i, f] - made[f]) ** 2
            total = total + (square if power == 2 else torch.sqrt(square))
    return total / (len(generated) * len(target))


def margin_pairs(
    z: list[Tensor], labels: list[int], images: list[int], *, same_image_positive: bool
) -> Tensor:
    """A loss of pairs made for the tests: mean of ‖a − b‖² over ordered positive pairs plus mean
    of max(0, 9 − ‖a − b‖²) over negative ones; an item is never paired with itself."""
    positive, negative = [], []
    for a in range(len(z)):
        for b in range(len(z)):
            if a == b:
                continue
            square = z[a].new_zeros(())
            for j in range(len(z[a])):
                square = square + (z[a][j] - z[b][j]) ** 2
            if labels[a] != labels[b]:
                negative.append(torch.clamp(9 - square, min=0))
            elif images[a] != images[b] or same_image_positive:
                positive.append(square)
    return sum(positive) / len(positive) + sum(negative) / len(negative)
