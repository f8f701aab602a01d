"""ArcFace: a margin on the target's angle."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from trainables.config.ranges import linear_range
from trainables.losses.base import LOSSES
from trainables.losses.geometry import safe_sqrt
from trainables.losses.margin_softmax import MarginConfig, MarginSoftmax


@LOSSES.register("arcface")
class ArcFace(MarginSoftmax):
    """Add a margin m to the angle of the target class; `MarginSoftmax` with

        ψ(cos θ) = cos(θ + m) = cos θ cos m − sin θ sin m

    No arccosine is computed. ψ'(c) grows without bound towards c = 1, but the gradient of the
    cosine vanishes there as sin θ; at |c| ≥ 1, sin θ counts as 0 with gradient 0.

    Beyond θ = π − m the printed cos(θ + m) rises again. With `beyond` "linear", as in the public
    code and in pytorch-metric-learning, ψ = cos θ − m sin m there, which keeps falling but has a
    step at π − m. "printed" is the equation without this change.

    Example:
        >>> loss = ArcFace(ArcFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.245

    References:
        Deng et al., "ArcFace: Additive angular margin loss for deep face recognition", CVPR 2019,
        Eq. 3. https://arxiv.org/abs/1801.07698
    """

    REVISION = 1

    class Config(MarginConfig):
        """scale: s; margin: m, in radians. 64 and 0.5 are the paper's.

        beyond: form of ψ where θ + m > π, "linear" or "printed"; see the class.
        """

        name: Literal["arcface"] = "arcface"
        margin: float = Field(0.5, ge=0, le=math.pi, **linear_range(0, 0.6, "0.5 in the paper"))
        beyond: Literal["linear", "printed"] = "linear"

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        m = self.options.margin
        cos_m, sin_m = math.cos(m), math.sin(m)
        sine = safe_sqrt((1 - cosine) * (1 + cosine), floor=0.0)
        turned = cosine * cos_m - sine * sin_m
        if self.options.beyond == "printed":
            return turned
        return torch.where(cosine >= -cos_m, turned, cosine - m * sin_m)
