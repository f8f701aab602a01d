"""Cross-entropy over classes: NormSoftmax on cosines, Softmax on the logits of a classifier."""

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig, store_as_none
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.proxies import ClassLoss, Init

LabelSmoothing = Annotated[float | None, Field(ge=0, lt=1), store_as_none(0)]


@LOSSES.register("normsoftmax")
class NormSoftmax(ClassLoss):
    """Compute softmax cross-entropy over cosines divided by a temperature:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s_ij / τ),   s_ij = cos(x_i, w_j)

    t_i is the one-hot label; for label sets it is spread over the set in proportion to the pair
    weights. There is one weight vector w per class and no bias. With label smoothing ε
    (`soft_cross_entropy`) t_i becomes (1 − ε) t_i + ε/C.

    Deviations: the paper's layer normalisation of the embedding without affine weights, and its
    binarised embeddings, are left out, because they are not part of the loss.

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
    classifies = True
    VECTORS = "weights"

    class Config(NamedConfig):
        """temperature: τ; 0.05 is the paper's value.
        init: initial class weights, see `draw_initial_proxies`; the default is the public code's.
        label_smoothing: ε; None: 0.
        Sources: label_smoothing: Szegedy et al., off."""

        name: Literal["normsoftmax"] = "normsoftmax"
        temperature: float = Field(0.05, gt=0, le=10, **log_range(0.02, 0.5, "0.05 in the paper"))
        init: Init = "uniform"
        label_smoothing: LabelSmoothing = None

    options: Config

    @property
    def logit_scale(self) -> float:
        return 1 / self.options.temperature

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        return soft_cross_entropy(
            score / self.options.temperature, pairs.pos, self.options.label_smoothing
        )


@LOSSES.register("softmax")
class Softmax(ClassLoss):
    """Compute softmax cross-entropy over products with class weights, as a classifier does:

        L = −1/B Σ_i Σ_j t_ij log softmax_j(s_ij + b_j),   s_ij = ⟨x_i, w_j⟩

    t_i is the one-hot label; for label sets it is uniform over the set. There is one weight vector
    w per class; nothing is normalised. With label smoothing ε (`soft_cross_entropy`) t_i becomes
    (1 − ε) t_i + ε/C. A method may replace the product by another score; the bias is added to it.

    Example:
        >>> loss = Softmax(Softmax.Config(), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.404

    References:
        Bridle, "Probabilistic interpretation of feedforward classification network outputs", 1990.
        https://doi.org/10.1007/978-3-642-76153-9_28
    """

    REVISION = 2
    geometry = Geometry("dot", normalize=False)
    classifies = True
    VECTORS = "weights"

    class Config(NamedConfig):
        """bias: whether there is a bias b, which starts at zero.
        init: initial w, see `draw_initial_proxies`; the default is torch's for a linear layer.
        label_smoothing: ε; None: 0.
        Sources: bias: torch's linear layer; label_smoothing: Szegedy et al., off."""

        name: Literal["softmax"] = "softmax"
        bias: bool = True
        init: Init = "uniform"
        label_smoothing: LabelSmoothing = None

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
        return 1.0

    def logits(self, score: Tensor) -> Tensor:
        """Return score + b, [..., B, C]."""
        return score if self.bias is None else score + self.bias

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        return soft_cross_entropy(self.logits(score), pairs.pos, self.options.label_smoothing)


def soft_cross_entropy(logits: Tensor, weights: Tensor, smoothing: float | None = None) -> Tensor:
    """Return the mean cross-entropy of logits[..., B, C] with soft targets t.

    t are the weights [..., B, C], divided by their sum over the classes. With label smoothing ε
    the targets are (1 − ε) t + ε/C. A query without a positive class counts as 0.

    References:
        Label smoothing: Szegedy et al., "Rethinking the Inception architecture for computer
        vision", CVPR 2016, section 7. https://arxiv.org/abs/1512.00567
    """
    total = weights.sum(-1, keepdim=True)
    targets = weights / total.clamp_min(1e-12)
    if smoothing is not None:
        # smooth in the logits' type, because float32, the type of the weights, would round ε/C
        labelled = (total > 0).to(logits.dtype)
        share = smoothing / weights.shape[-1]
        targets = (1 - smoothing) * targets.to(logits.dtype) + share * labelled
    return -(targets * F.log_softmax(logits, dim=-1)).sum(-1).mean()
