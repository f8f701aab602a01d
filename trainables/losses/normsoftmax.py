"""NormSoftmax: softmax cross-entropy over temperature-scaled cosines to class weights."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.proxies import ClassLoss, Init


def normalize_smoothing(value: float | None) -> float | None:
    """Label smoothing of 0, written out or not, is one trial."""
    return value or None


@LOSSES.register("normsoftmax")
class NormSoftmax(ClassLoss):
    """NormSoftmax (Zhai & Wu, "Classification is a strong baseline for deep metric learning",
    BMVC 2019):

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s_ij / τ),   s_ij = cos(x_i, w_j)

    with t_i the one-hot label; for label sets, t_i spreads evenly over the set, in proportion
    to the pair weights. One weight vector w per class, no bias. With label smoothing ε
    (`soft_cross_entropy`) t_i becomes (1 − ε) t_i + ε/C.

    Not part of the loss, and left out: the paper's layer normalisation of the embedding without
    affine weights, and its binarised embeddings.

    Shapes: score [..., B, C] → scalar, the mean over B and leading dimensions.

    Example:
        >>> loss = NormSoftmax(NormSoftmax.Config(temperature=0.5), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.224
    """

    REVISION = 1
    geometry = Geometry("cosine")
    classifies = True
    VECTORS = "weights"

    class Config(NamedConfig):
        """temperature: τ; 0.05 is the paper's. init: `proxies.start`; the public code's.
        label_smoothing: ε; None: 0."""

        name: Literal["normsoftmax"] = "normsoftmax"
        temperature: float = Field(0.05, gt=0, le=10)
        init: Init = "uniform"
        label_smoothing: float | None = Field(None, ge=0, lt=1)

        smoothing_off = field_validator("label_smoothing")(normalize_smoothing)

    options: Config

    @property
    def logit_scale(self) -> float:
        """1/τ."""
        return 1 / self.options.temperature

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        return soft_cross_entropy(
            score / self.options.temperature, pairs.pos, self.options.label_smoothing
        )


def soft_cross_entropy(logits: Tensor, weights: Tensor, smoothing: float | None = None) -> Tensor:
    """Return cross-entropy of logits[..., B, C] to the targets t = weights[..., B, C] / Σ_C,
    meaned.

    With label smoothing ε (Szegedy et al., "Rethinking the Inception architecture", CVPR 2016,
    section 7) the targets are (1 − ε) t + ε/C. A query with no positive class counts as 0.
    """
    total = weights.sum(-1, keepdim=True)
    targets = weights / total.clamp_min(1e-12)
    if smoothing is not None:
        # In the logits' type: pair weights are float32, in which ε/C is no round number.
        labelled = (total > 0).to(logits.dtype)
        share = smoothing / weights.shape[-1]
        targets = (1 - smoothing) * targets.to(logits.dtype) + share * labelled
    return -(targets * F.log_softmax(logits, dim=-1)).sum(-1).mean()
