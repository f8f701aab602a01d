"""CosFace, ArcFace and SphereFace as loops over their equations; see `losses.py` for the manner.

Labels are weights by class, {class: weight}: 1 for each of a label set, or a mixed image's shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.losses import cosine

Labels = list[dict[int, float]]


def margin_softmax(
    x: Tensor, weights: Tensor, labels: Labels, scale: float, psi: Callable[[Tensor], Tensor]
) -> Tensor:
    """−1/B Σ_i Σ_y t_iy log(e^{s ψ(θ_iy)} / Σ_j e^{s …}), t_i the weights divided by their sum;
    of a weight u, the logit lies the share u of the way from cos θ to ψ(θ)."""
    total = x.new_zeros(())
    for i in range(len(x)):
        exps = []
        for j, w in enumerate(weights):
            c = cosine(x[i], w)
            u = labels[i].get(j, 0.0)
            exps.append(torch.exp(scale * (c if u == 0 else (1 - u) * c + u * psi(torch.acos(c)))))
        for y, u in labels[i].items():
            total = total - u / sum(labels[i].values()) * torch.log(exps[y] / sum(exps))
    return total / len(x)


def cosface(m: float) -> Callable[[Tensor], Tensor]:
    """Wang et al., Eq. 4."""
    return lambda theta: torch.cos(theta) - m


def arcface(m: float, beyond: str) -> Callable[[Tensor], Tensor]:
    """Deng et al., Eq. 3; past π − m a line of the same cosine."""

    def psi(theta: Tensor) -> Tensor:
        if beyond == "linear" and theta > math.pi - m:
            return torch.cos(theta) - m * math.sin(m)
        return torch.cos(theta + m)

    return psi


def sphereface(m: float, relaxation: float) -> Callable[[Tensor], Tensor]:
    """Liu et al., Eq. 7 and the text after it: the k with θ ∈ [kπ/m, (k + 1)π/m]."""

    def psi(theta: Tensor) -> Tensor:
        k = 0
        while theta > (k + 1) * math.pi / m:
            k += 1
        phi = (-1) ** k * torch.cos(m * theta) - 2 * k
        return (relaxation * torch.cos(theta) + phi) / (1 + relaxation)

    return psi
