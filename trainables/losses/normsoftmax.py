"""NormSoftmax: softmax cross-entropy over temperature-scaled cosines to class weights."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs, References
from trainables.losses.proxies import Init, start


@LOSSES.register("normsoftmax")
class NormSoftmax(Loss):
    """NormSoftmax (Zhai & Wu, "Classification is a strong baseline for deep metric learning",
    BMVC 2019):

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s_ij / τ),   s_ij = cos(x_i, w_j)

    with t_i the one-hot label; for label sets, t_i spreads evenly over the set, in proportion
    to the pair weights. One weight vector w per class, no bias.

    Not part of the loss, and left out: the paper's layer normalisation of the embedding without
    affine weights, and its binarised embeddings.

    Shapes: score [..., B, C] → scalar, the mean over B and leading dimensions.
    """

    REVISION = 1
    geometry = Geometry("cosine")

    class Config(NamedConfig):
        """temperature: τ; 0.05 is the paper's. init: `proxies.start`; the public code's."""

        name: Literal["normsoftmax"] = "normsoftmax"
        temperature: float = Field(0.05, gt=0, le=10)
        init: Init = "uniform"

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.temperature: float | Tensor = config.temperature
        self.weights = start(classes, dim, config.init)
        self.register_buffer("labels", torch.arange(classes), persistent=False)
        self.labels: Tensor

    @property
    def logit_scale(self) -> float | Tensor:
        """1/τ."""
        return 1 / self.temperature

    def references(self) -> References:
        return References(self.weights, self.labels)

    def forward(
        self, score: Tensor, pairs: Pairs, *, generator: torch.Generator | None = None
    ) -> Tensor:
        return soft_cross_entropy(score / self.temperature, pairs.pos)


def soft_cross_entropy(logits: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of logits[..., B, C] to the targets weights[..., B, C] / Σ_C, meaned.

    A query with no positive class counts as 0.
    """
    targets = weights / weights.sum(-1, keepdim=True).clamp_min(1e-12)
    return -(targets * F.log_softmax(logits, dim=-1)).sum(-1).mean()
