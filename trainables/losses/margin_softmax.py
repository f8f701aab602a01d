"""The common base of CosFace, ArcFace and SphereFace: a softmax with a margin on the target."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import Geometry, Pairs
from trainables.losses.normsoftmax import soft_cross_entropy
from trainables.losses.proxies import ClassLoss, Init


class MarginConfig(NamedConfig):
    """scale: factor s of the logits.
    init: initial class weights, see `draw_initial_proxies`; the papers state none, so the
        default is NormSoftmax's."""

    scale: float = Field(64.0, gt=0, le=1024)
    init: Init = "uniform"


class MarginSoftmax(ClassLoss):
    """Compute softmax cross-entropy with a margin on the classes of the query:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s · ψ_ij),
        ψ_ij = ψ(c_ij) for classes j of item i, c_ij for all others,   c_ij = cos(x_i, w_j)

    There is one weight vector w per class and no bias. Subclasses define ψ(c) ≤ c.

    With label sets every class of the set gets the margin, and t_i is uniform over the set. With
    fractional pair weights w, t_i is proportional to the weights, and ψ_ij = c + w (ψ(c) − c). A
    query without a positive class counts as 0. A method may replace the cosine by another score,
    which must lie in [−1, 1] for the angular losses.

    Shape:
        score: [..., B, C]; the loss is the mean over B and leading dimensions.
    """

    geometry = Geometry("cosine")
    classifies = True
    VECTORS = "weights"
    options: MarginConfig

    @property
    def logit_scale(self) -> float:
        """Return s."""
        return self.options.scale

    def target(self, cosine: Tensor) -> Tensor:
        """Return ψ(c), elementwise, with finite value and gradient on [−1, 1] and just beyond."""
        raise NotImplementedError

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        # lerp is exact at weights 0 and 1.
        logits = torch.lerp(score, self.target(score), pairs.pos.to(score.dtype))
        return soft_cross_entropy(self.options.scale * logits, pairs.pos)
