"""Softmax: cross-entropy over the logits of a linear classifier."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Generator, Tensor, nn

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.normsoftmax import normalize_smoothing, soft_cross_entropy
from trainables.losses.proxies import ClassLoss, Init


@LOSSES.register("softmax")
class Softmax(ClassLoss):
    """Compute softmax cross-entropy over products with class weights, as a classifier does:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s_ij + b_j),   s_ij = ⟨x_i, w_j⟩

    t_i is the one-hot label; for label sets it is uniform over the set. There is one weight vector
    w per class; nothing is normalised. With label smoothing ε (`soft_cross_entropy`) t_i becomes
    (1 − ε) t_i + ε/C. A method may replace the product by another score; the bias is added to it.

    Shape:
        score: [..., B, C]; the loss is the mean over B and leading dimensions.

    Example:
        >>> loss = Softmax(Softmax.Config(), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.404
    """

    REVISION = 2
    geometry = Geometry("dot", normalize=False)
    classifies = True
    VECTORS = "weights"

    class Config(NamedConfig):
        """bias: whether there is a bias b, which starts at zero.
        init: initial w, see `draw_initial_proxies`; the default is torch's for a linear layer.
        label_smoothing: ε; None: 0."""

        name: Literal["softmax"] = "softmax"
        bias: bool = True
        init: Init = "uniform"
        label_smoothing: float | None = Field(None, ge=0, lt=1)

        smoothing_off = field_validator("label_smoothing")(normalize_smoothing)

    options: Config

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.bias = nn.Parameter(torch.zeros(classes)) if config.bias else None

    @property
    def retrieval(self) -> Geometry:
        """Return the cosine: by the product, a long embedding would be the neighbour of all."""
        return Geometry("cosine")

    @property
    def logit_scale(self) -> float:
        """Return 1."""
        return 1.0

    def logits(self, score: Tensor) -> Tensor:
        """Return score + b, [..., B, C]."""
        return score if self.bias is None else score + self.bias

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        return soft_cross_entropy(self.logits(score), pairs.pos, self.options.label_smoothing)
