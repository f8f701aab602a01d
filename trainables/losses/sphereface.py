"""SphereFace: the target's angle times a margin."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from trainables.losses.base import LOSSES
from trainables.losses.margin_softmax import MarginConfig, MarginSoftmax


@LOSSES.register("sphereface")
class SphereFace(MarginSoftmax):
    """SphereFace, the A-Softmax loss (Liu et al., "SphereFace: Deep hypersphere embedding for
    face recognition", CVPR 2017, Eq. 7): `MarginSoftmax` with

        φ(cos θ) = (−1)^k cos(m θ) − 2k,   k = ⌊m θ/π⌋,
        ψ = (λ cos θ + φ) / (1 + λ)

    Deviations. The paper multiplies logits by the length ‖x‖ of the embedding; a loss here sees
    scores, not embeddings, so that a constant scale s stands in its place: the feature-normalised
    form of the same authors' later work (Liu et al., "SphereFace revived: Unifying hyperspherical
    face recognition", TPAMI 2022), without its detached gradients. λ is the public code's
    relaxation, which falls from 1000 to 5 in training there and is constant here. m need not be
    an integer, nor at least 1; at m = 1 the loss is NormSoftmax.

    At |c| ≥ 1 θ counts as 0 or π with gradient 0.

    Example:
        >>> loss = SphereFace(SphereFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.135
    """

    REVISION = 1

    class Config(MarginConfig):
        """scale: s; margin: m, a factor of the angle; relaxation: λ.

        m = 1.5 and s = 30 are the defaults of the later work's public code. The CVPR paper's
        m = 4 belongs to free lengths and a falling λ: take it with relaxation 5 or more.
        """

        name: Literal["sphereface"] = "sphereface"
        scale: float = Field(30.0, gt=0, le=1024)
        margin: float = Field(1.5, gt=0, le=8)
        relaxation: float = Field(0.0, ge=0, le=1e6)

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        m, relaxation = self.options.margin, self.options.relaxation
        turned = m * safe_arccos(cosine)
        k = (turned.detach() / math.pi).floor()
        phi = (1 - 2 * k.remainder(2)) * turned.cos() - 2 * k
        return (relaxation * cosine + phi) / (1 + relaxation)


def safe_arccos(cosine: Tensor) -> Tensor:
    """Return arccos c in [0, π]; 0 or π with gradient 0 at |c| ≥ 1, where its gradient is
    infinite."""
    inside = cosine.abs() < 1
    angle = torch.where(inside, cosine, torch.zeros_like(cosine)).acos()
    edge = torch.where(cosine > 0, torch.zeros_like(cosine), torch.full_like(cosine, math.pi))
    return torch.where(inside, angle, edge)
