"""NormSoftmax: softmax cross-entropy over temperature-scaled cosines to class weights."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.proxies import ClassLoss, Init


def normalize_smoothing(value: float | None) -> float | None:
    """Read a label smoothing of 0 as None, so that both identify the same trial."""
    return value or None


@LOSSES.register("normsoftmax")
class NormSoftmax(ClassLoss):
    """Compute softmax cross-entropy over cosines divided by a temperature:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s_ij / τ),   s_ij = cos(x_i, w_j)

    t_i is the one-hot label; for label sets it is spread over the set in proportion to the pair
    weights. There is one weight vector w per class and no bias. With label smoothing ε
    (`soft_cross_entropy`) t_i becomes (1 − ε) t_i + ε/C.

    Left out, because they are not part of the loss: the paper's layer normalisation of the
    embedding without affine weights, and its binarised embeddings.

    Shape:
        score: [..., B, C]; the loss is the mean over B and leading dimensions.

    Example:
        >>> loss = NormSoftmax(NormSoftmax.Config(temperature=0.5), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.224

    References:
        Zhai & Wu, "Classification is a strong baseline for deep metric learning", BMVC 2019.
        https://arxiv.org/abs/1811.12649
    """

    REVISION = 1
    geometry = Geometry("cosine")
    classifies = True
    VECTORS = "weights"

    class Config(NamedConfig):
        """temperature: τ; 0.05 is the paper's value.
        init: initial class weights, see `draw_initial_proxies`; the default is the public code's.
        label_smoothing: ε; None: 0."""

        name: Literal["normsoftmax"] = "normsoftmax"
        temperature: float = Field(0.05, gt=0, le=10, **log_range(0.02, 0.5, "0.05 in the paper"))
        init: Init = "uniform"
        label_smoothing: float | None = Field(None, ge=0, lt=1)

        smoothing_off = field_validator("label_smoothing")(normalize_smoothing)

    options: Config

    @property
    def logit_scale(self) -> float:
        """Return 1/τ."""
        return 1 / self.options.temperature

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        return soft_cross_entropy(
            score / self.options.temperature, pairs.pos, self.options.label_smoothing
        )


def soft_cross_entropy(logits: Tensor, weights: Tensor, smoothing: float | None = None) -> Tensor:
    """Return the mean cross-entropy of logits[..., B, C] and targets t = weights[..., B, C] / Σ_C.

    With label smoothing ε the targets are (1 − ε) t + ε/C. A query without a positive class counts
    as 0.

    References:
        Label smoothing: Szegedy et al., "Rethinking the Inception architecture for computer
        vision", CVPR 2016, section 7. https://arxiv.org/abs/1512.00567
    """
    total = weights.sum(-1, keepdim=True)
    targets = weights / total.clamp_min(1e-12)
    if smoothing is not None:
        # In the logits' type: pair weights are float32, in which ε/C is no round number.
        labelled = (total > 0).to(logits.dtype)
        share = smoothing / weights.shape[-1]
        targets = (1 - smoothing) * targets.to(logits.dtype) + share * labelled
    return -(targets * F.log_softmax(logits, dim=-1)).sum(-1).mean()
