"""SphereFace: the target's angle times a margin."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from trainables.config.ranges import linear_range, log_range
from trainables.losses.base import LOSSES
from trainables.losses.margin_softmax import MarginConfig, MarginSoftmax


@LOSSES.register("sphereface")
class SphereFace(MarginSoftmax):
    """Multiply the angle of the target class by m (A-Softmax); `MarginSoftmax` with

        φ(cos θ) = (−1)^k cos(m θ) − 2k,   k = ⌊m θ/π⌋,
        ψ = (λ cos θ + φ) / (1 + λ)

    Deviations: the paper multiplies logits by the length ‖x‖ of the embedding; a loss here gets
    scores, not embeddings, so that a constant scale s replaces it: the feature-normalised form of
    the authors' later work, without its detached gradients. λ is the relaxation of the public
    code, where it falls from 1000 to 5 in training; here it is constant. m may be any positive
    number; at m = 1 the loss is NormSoftmax. At |c| ≥ 1, θ counts as 0 or π with gradient 0.

    Example:
        >>> loss = SphereFace(SphereFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.135

    References:
        Liu et al., "SphereFace: Deep hypersphere embedding for face recognition", CVPR 2017,
        Eq. 7. https://arxiv.org/abs/1704.08063
        Liu et al., "SphereFace revived: Unifying hyperspherical face recognition", TPAMI 2022.
    """

    REVISION = 1

    class Config(MarginConfig):
        """scale: s; 30 is the value of the later work's public code.
        margin: m, factor of the angle; 1.5 is the value of the later work's public code. The
            CVPR paper's 4 belongs to free lengths and a falling λ: use it with relaxation ≥ 5.
        relaxation: λ.
        """

        name: Literal["sphereface"] = "sphereface"
        scale: float = Field(30.0, gt=0, le=1024, **log_range(8, 64, "around the default"))
        margin: float = Field(1.5, gt=0, le=8, **linear_range(1.1, 2, "around the default"))
        relaxation: float = Field(0.0, ge=0, le=1e6)

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        m, relaxation = self.options.margin, self.options.relaxation
        angle = m * safe_arccos(cosine)
        k = (angle.detach() / math.pi).floor()
        phi = (1 - 2 * k.remainder(2)) * angle.cos() - 2 * k
        return (relaxation * cosine + phi) / (1 + relaxation)


def safe_arccos(cosine: Tensor) -> Tensor:
    """Return arccos c in [0, π], with gradient 0 at |c| ≥ 1, where the true one is infinite."""
    inside = cosine.abs() < 1
    angle = torch.where(inside, cosine, torch.zeros_like(cosine)).acos()
    edge = torch.where(cosine > 0, torch.zeros_like(cosine), torch.full_like(cosine, math.pi))
    return torch.where(inside, angle, edge)
