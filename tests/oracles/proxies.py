"""Proxy-NCA, Proxy-NCA++, NIR's form and SoftTriple as loops; see `losses.py` for the manner.

Labels are weights by class, {class: weight}: 1 for each of a label set, or a mixed image's
shares; what is left of 1 is the weight as a negative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.oracles.losses import cosine

Labels = list[dict[int, float]]


def apart(a: Tensor, b: Tensor) -> Tensor:
    """‖a/‖a‖ − b/‖b‖‖², coordinate by coordinate."""
    aa, bb, total = a.new_zeros(()), a.new_zeros(()), a.new_zeros(())
    for i in range(len(a)):
        aa, bb = aa + a[i] * a[i], bb + b[i] * b[i]
    for i in range(len(a)):
        total = total + (a[i] / aa.sqrt() - b[i] / bb.sqrt()) ** 2
    return total


def proxy_nca(
    x: Tensor, proxies: Tensor, labels: Labels, scale: float, *, every: bool = False
) -> Tensor:
    """Movshovitz-Attias et al., Eq. 4, with positives summed inside the logarithm; `every`: over
    every proxy, Proxy-NCA++ with T = 1/scale."""
    total = x.new_zeros(())
    for i in range(len(x)):
        near, far, negatives = x.new_zeros(()), x.new_zeros(()), False
        for c, proxy in enumerate(proxies):
            e, u = torch.exp(-scale * apart(x[i], proxy)), labels[i].get(c, 0.0)
            near = near + u * e
            far = far + (e if every else (1 - u) * e)
            negatives = negatives or every or u < 1
        if labels[i]:
            total = total - torch.log(near)
            if negatives:
                total = total + torch.log(far)
    return total / len(x)


def proxy_nca_nir(
    x: Tensor, proxies: Tensor, labels: Labels, alpha: float, margin: float
) -> Tensor:
    """Roth et al., Eq. 6."""
    positive, negative, drawn, pushed = x.new_zeros(()), x.new_zeros(()), 0, 0
    for i in range(len(x)):
        up, down = x.new_zeros(()), x.new_zeros(())
        for c, proxy in enumerate(proxies):
            s, u = cosine(x[i], proxy), labels[i].get(c, 0.0)
            up = up + u * torch.exp(-alpha * (s - margin))
            down = down + (1 - u) * torch.exp(alpha * (s + margin))
        positive, drawn = positive + torch.log(1 + up), drawn + bool(labels[i])
        negative = negative + torch.log(1 + down)
        pushed += any(labels[i].get(c, 0.0) < 1 for c in range(len(proxies)))
    return positive / max(drawn, 1) + negative / max(pushed, 1)


def soft_triple(
    x: Tensor, centres: Tensor, labels: Labels, *, scale: float, gamma: float, margin: float
) -> Tensor:
    """Qian et al.: centres [C, K, D]; a relaxed similarity to each class, then a softmax."""
    total = x.new_zeros(())
    for i in range(len(x)):
        exps = []
        for c, own in enumerate(centres):
            s = [cosine(x[i], w) for w in own]
            shares = [torch.exp(one / gamma) for one in s]
            relaxed = sum(a * b for a, b in zip(shares, s, strict=True)) / sum(shares)
            exps.append(torch.exp(scale * (relaxed - margin * labels[i].get(c, 0.0))))
        for y, u in labels[i].items():
            total = total - u / sum(labels[i].values()) * torch.log(exps[y] / sum(exps))
    return total / len(x)


def centre_distances(centres: Tensor) -> Tensor:
    """1/(C K (K − 1)) Σ_c Σ_{k<l} √(2 − 2 cos)."""
    total, (classes, each, _) = centres.new_zeros(()), centres.shape
    for own in centres:
        for k in range(each):
            for other in range(k + 1, each):
                total = total + torch.sqrt(2 - 2 * cosine(own[k], own[other]))
    return total / (classes * each * (each - 1))
