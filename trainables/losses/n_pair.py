"""N-pair: one pair of each class, each anchor against the positives of all classes."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig, store_as_none
from trainables.losses.base import (
    LOG_OF_0,
    LOSSES,
    Geometry,
    PairedLoss,
    Pairs,
    number_within_class,
)


@LOSSES.register("n_pair")
class NPair(PairedLoss):
    """Classify each anchor's positive among the positives of all classes:

        L = 1/N Σ_i log(1 + Σ_{j≠i} exp(s (f_iᵀ f_j⁺ − f_iᵀ f_i⁺)))

    The sum is over N classes with one pair (f_i, f_i⁺) each. With M > 2 images of a class the
    first ⌊M/2⌋ are anchors and the next ⌊M/2⌋ their positives; the k-th pairs of all classes form
    one N-pair batch, and the mean is over all anchors. A batch without pairs gives 0.

    Training uses the inner product of embeddings that are not normalised. The paper limits their
    length by a penalty (section 3.2.2), the term "norm". Retrieval is by cosine by default, because
    the paper wants only the direction to decide, and by inner products the longest embedding would
    be the neighbour of all others.

    Logged:
        norm: half the mean of ‖f‖² over the batch, before its weight.

    Example:
        >>> loss = NPair(NPair.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.448

    References:
        Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NeurIPS
        2016, Eq. 7; DVML, Eq. 3.
        https://papers.nips.cc/paper/2016/hash/6b180037abbebea991d8b1232f8a8ca9-Abstract.html
    """

    REVISION = 1
    geometry = Geometry("dot", normalize=False)

    class Config(NamedConfig):
        """norm_weight: weight of the term "norm"; the paper states none, 0.002 is the value of
            TensorFlow's npairs_loss.
        compare_by: score of retrieval, "cosine", or "dot" as in training.
        scale: s, the factor of the inner products. None: 1, as in the paper. The long
            embeddings of EfficientNet-Lite0 saturate the softmax: validation MAP@R of heads is
            35.0, 35.5 and 37.6 at s = 1, 0.1 and 0.01 (typefaces, `pool: avg`, three seeds).
        Sources: compare_by: the paper's section 3.2.2; scale: this project.
        """

        name: Literal["n_pair"] = "n_pair"
        norm_weight: float = Field(0.002, ge=0)
        compare_by: Literal["cosine", "dot"] = "cosine"
        scale: Annotated[float | None, Field(gt=0, le=1e6), store_as_none(1.0)] = None

    options: Config

    @property
    def retrieval(self) -> Geometry:
        return self.geometry if self.options.compare_by == "dot" else Geometry("cosine")

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the cross-entropy of each anchor's positive among the positives of all classes."""
        if self.options.scale is not None:
            score = self.options.scale * score
        same_class, view = number_within_class(pairs.labels)
        half = same_class.sum(-1) // 2
        # The first half of a class's images are anchors, the second half their positives. Column
        # j is the positive of anchor number view_j − half_j of its class, and the negative of the
        # anchors with that number in other classes.
        pair_number = view - half
        fits = (pair_number >= 0) & (pair_number < half) & (pair_number == view[:, None])
        partner = same_class & fits
        weight = (pairs.pos * partner).sum(-1)
        logits = torch.where(partner | (fits & ~same_class), score, LOG_OF_0)
        # Rows without a partner give logsumexp − 0, finite, with the weight 0.
        loss = logits.logsumexp(-1) - (score * partner).sum(-1)
        count = weight.sum(-1)
        return ((weight * loss).sum(-1) / torch.where(count > 0, count, 1)).mean()

    def query_penalty(self, query: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {"norm": (0.5 * query.square().sum(-1).mean(), self.options.norm_weight)}
