"""NormSoftmax and Proxy-Anchor as loops over the printed equations, in float64.

Scalars are torch's, so that autograd of these loops gives the gradient to compare with. Nothing
here is vectorised, masked or stabilised, and nothing is shared with the code under test.
"""

from __future__ import annotations

import torch
from torch import Tensor


def cosine(a: Tensor, b: Tensor) -> Tensor:
    dot, aa, bb = a.new_zeros(()), a.new_zeros(()), a.new_zeros(())
    for i in range(len(a)):
        dot, aa, bb = dot + a[i] * b[i], aa + a[i] * a[i], bb + b[i] * b[i]
    return dot / (aa.sqrt() * bb.sqrt())


def normsoftmax(x: Tensor, weights: Tensor, labels: list[set[int]], temperature: float) -> Tensor:
    """−1/B Σ_i 1/|Y_i| Σ_{y∈Y_i} log(e^{s_iy/τ} / Σ_j e^{s_ij/τ})."""
    total = x.new_zeros(())
    for i in range(len(x)):
        exps = [torch.exp(cosine(x[i], w) / temperature) for w in weights]
        for y in labels[i]:
            total = total - torch.log(exps[y] / sum(exps)) / len(labels[i])
    return total / len(x)


def smoothed_softmax(
    logits: list[list[Tensor]], labels: list[set[int]], smoothing: float
) -> Tensor:
    """−1/B Σ_i Σ_j t_ij log(e^{z_ij} / Σ_k e^{z_ik}), t_ij = (1 − ε) [j ∈ Y_i] / |Y_i| + ε/C."""
    total = logits[0][0].new_zeros(())
    for row, mine in zip(logits, labels, strict=True):
        exps = [torch.exp(z) for z in row]
        for j in range(len(row)):
            target = smoothing / len(row)
            if j in mine:
                target = target + (1 - smoothing) / len(mine)
            total = total - target * torch.log(exps[j] / sum(exps))
    return total / len(labels)


def product(a: Tensor, b: Tensor) -> Tensor:
    total = a.new_zeros(())
    for i in range(len(a)):
        total = total + a[i] * b[i]
    return total


def proxy_anchor(
    x: Tensor, proxies: Tensor, labels: list[set[int]], alpha: float, margin: float
) -> Tensor:
    """Kim et al., Eq. 4."""
    positive, negative, with_positives = x.new_zeros(()), x.new_zeros(()), 0
    for c, proxy in enumerate(proxies):
        up, down, has = x.new_zeros(()), x.new_zeros(()), False
        for i in range(len(x)):
            s = cosine(x[i], proxy)
            if c in labels[i]:
                up, has = up + torch.exp(-alpha * (s - margin)), True
            else:
                down = down + torch.exp(alpha * (s + margin))
        if has:
            positive, with_positives = positive + torch.log(1 + up), with_positives + 1
        negative = negative + torch.log(1 + down)
    return positive / with_positives + negative / len(proxies)
