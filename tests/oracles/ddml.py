"""DDML's terms as loops over Eq. 6 of the paper, in float64; see `losses.py` for the manner."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.oracles.losses import cosine


def std(raw: Tensor) -> Tensor:
    """softplus(raw − 5) as log(1 + e^…)."""
    return torch.log(1 + torch.exp(raw - 5))


def length(x: Tensor) -> Tensor:
    """‖x‖, of one vector."""
    return torch.sqrt(sum(entry * entry for entry in x))


def posterior(z: Tensor, proxies: Tensor, scale: float) -> list[Tensor]:
    """q(j|z) for each class j."""
    exps = [torch.exp(scale * cosine(z, proxy)) for proxy in proxies]
    return [e / sum(exps) for e in exps]


def agnostic(z: Tensor, proxies: Tensor, scale: float) -> Tensor:
    """Cross-entropy of q(·|z) to the uniform distribution, mean over samples."""
    total = z.new_zeros(())
    for n in range(len(z)):
        for q in posterior(z[n], proxies, scale):
            total = total - torch.log(q) / len(proxies)
    return total / len(z)


def agnostic_printed(z: Tensor, proxies: Tensor, scale: float) -> Tensor:
    """−log Σ_j q(j|z) · 1/P, mean over samples."""
    total = z.new_zeros(())
    for n in range(len(z)):
        total = total - torch.log(sum(posterior(z[n], proxies, scale)) / len(proxies))
    return total / len(z)


def specific(z: Tensor, labels: list[int], proxies: Tensor, scale: float) -> Tensor:
    """−log q(y|zˢ), mean over samples."""
    total = z.new_zeros(())
    for n, y in enumerate(labels):
        total = total - torch.log(posterior(z[n], proxies, scale)[y])
    return total / len(z)


def split_closed(mean: Tensor, sigma: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = −log σ + (σ² + μ² − 1)/2, summed over dimensions."""
    total = mean.new_zeros(())
    for n in range(len(mean)):
        for d in range(mean.shape[1]):
            m, s = mean[n, d], sigma[n, d]
            total = total - torch.log(s) + (s * s + m * m - 1) / 2
    return total / len(mean)


def split_sampled(mean: Tensor, sigma: Tensor, z: Tensor) -> Tensor:
    """log N(z; μ, σ²) − log N(z; 0, 1) at z, summed over dimensions."""
    total = mean.new_zeros(())
    for n in range(len(mean)):
        for d in range(mean.shape[1]):
            total = total + _log_normal(z[n, d], mean[n, d], sigma[n, d])
            total = total - _log_normal(z[n, d], torch.zeros(()), torch.ones(()))
    return total / len(mean)


def _log_normal(x: Tensor, mean: Tensor, sigma: Tensor) -> Tensor:
    density = torch.exp(-((x - mean) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))
    return torch.log(density)
