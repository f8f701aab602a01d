"""What CosFace, ArcFace and SphereFace share: a softmax whose target cosine pays a margin."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import Geometry, Pairs
from trainables.losses.normsoftmax import soft_cross_entropy
from trainables.losses.proxies import ClassLoss, Init


class MarginConfig(NamedConfig):
    """scale: factor s of the logits. init: of the class weights, `proxies.start`; the papers do
    not state one, so NormSoftmax's is taken."""

    scale: float = Field(64.0, gt=0, le=1024)
    init: Init = "uniform"


class MarginSoftmax(ClassLoss):
    """Softmax cross-entropy with a margin on the classes of the query:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s · ψ_ij),
        ψ_ij = ψ(c_ij) for classes j of item i, c_ij for all others,   c_ij = cos(x_i, w_j)

    One weight vector w per class, no bias. Subclasses give ψ(c) ≤ c.

    Label sets: every class of the set pays the margin, and t_i spreads evenly over the set. Of a
    fractional pair weight w both follow: t_i in proportion to the weights, and
    ψ_ij = c + w (ψ(c) − c). A query without a positive class counts as 0. A method's own score
    takes the place of the cosine, and has to lie in [−1, 1] for the angular losses.

    Shapes: score [..., B, C] → scalar, the mean over B and leading dimensions.
    """

    geometry = Geometry("cosine")
    classifies = True
    VECTORS = "weights"
    options: MarginConfig

    @property
    def logit_scale(self) -> float:
        """s."""
        return self.options.scale

    def target(self, cosine: Tensor) -> Tensor:
        """Return ψ(c), elementwise; value and gradient finite on all of [−1, 1] and a rounding
        beyond."""
        raise NotImplementedError

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        # lerp is exact at weights 0 and 1.
        logits = torch.lerp(score, self.target(score), pairs.pos.to(score.dtype))
        return soft_cross_entropy(self.options.scale * logits, pairs.pos)
