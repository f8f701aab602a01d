"""CosFace: a margin off the target's cosine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from trainables.config.ranges import linear_range
from trainables.losses.base import LOSSES
from trainables.losses.margin_softmax import MarginConfig, MarginSoftmax


@LOSSES.register("cosface")
class CosFace(MarginSoftmax):
    """Subtract a margin m from the cosine of the target class; `MarginSoftmax` with

        ψ(c) = c − m

    Example:
        >>> loss = CosFace(CosFace.Config(scale=4), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.233

    References:
        Wang et al., "CosFace: Large margin cosine loss for deep face recognition", CVPR 2018,
        Eq. 4. https://arxiv.org/abs/1801.09414
    """

    REVISION = 1

    class Config(MarginConfig):
        """scale: s; margin: m. 64 is the paper's in its experiments, 0.35 its choice of m."""

        name: Literal["cosface"] = "cosface"
        margin: float = Field(0.35, ge=0, le=2, **linear_range(0, 0.6, "0.35 in the paper"))

    options: Config

    def target(self, cosine: Tensor) -> Tensor:
        return cosine - self.options.margin
