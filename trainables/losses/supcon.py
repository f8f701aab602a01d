"""SupCon: each positive classified among all other items of the batch."""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOG_OF_0, LOSSES, BatchNeeds, Loss, Pairs
from trainables.losses.smooth_ranks import average_over_queries


@LOSSES.register("supcon")
class SupCon(Loss):
    """Classify each positive among all other items of the batch (L_out of the paper):

        L = mean over anchors i of  −1/|P_i| Σ_{p∈P_i} log( e^{s_ip/τ} / Σ_{a≠i} e^{s_ia/τ} )

    s = cosine, P_i: the other items of i's class; the sum over a has positives and negatives.
    Anchors without positives are left out; a batch without positive pairs gives 0.

    Deviations: the paper sums over anchors, and here is the mean. The authors' code multiplies
    the loss by τ / 0.07. The paper trains on two views of each image and on a projection head
    that is discarded; here each image has one view, and the embedding itself is trained.

    Example:
        >>> loss = SupCon(SupCon.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.027

    References:
        Khosla et al., "Supervised contrastive learning", NeurIPS 2020, Eq. 2.
        https://arxiv.org/abs/2004.11362
    """

    REVISION = 1
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """temperature: τ; 0.1 is the paper's value, 0.07 the default of the authors' code."""

        name: Literal["supcon"] = "supcon"
        temperature: float = Field(
            0.1, gt=0, le=10, **log_range(0.02, 0.5, "0.1 in the paper, 0.07 in the authors' code")
        )

    options: Config

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean over anchors of their mean cross-entropy over positives."""
        logits = torch.where(pairs.pos + pairs.neg > 0, score / self.options.temperature, LOG_OF_0)
        entropy = logits.logsumexp(-1, keepdim=True) - logits
        loss = (pairs.pos * entropy).sum(-1) / pairs.pos.sum(-1).clamp_min(1)
        return average_over_queries(loss, pairs.pos)
