"""Multi-Similarity: pairs mined by their neighbours and weighed by their closeness."""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range, range_between
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Loss, Pairs
from trainables.losses.proxy_anchor import log_one_plus_column_sum


@LOSSES.register("multi_similarity")
class MultiSimilarity(Loss):
    """Mine pairs by comparing them with their rivals, then weigh them by their similarity:

        L = 1/B Σ_i { 1/α log[1 + Σ_{k∈P_i} e^{−α(s_ik − λ)}]
                    + 1/β log[1 + Σ_{k∈N_i} e^{ β(s_ik − λ)}] },   s = cosine

    Mining keeps in P_i the positives with s_ik < max over the negatives of s_i· + ε, and in N_i
    the negatives with s_ik > min over the positives of s_i· − ε. So an item without negatives
    has an empty P_i, and one without positives an empty N_i.

    Deviations: the authors' code leaves out items with an empty P_i or N_i; here, as in the
    equation, the other set still counts.

    Example:
        >>> loss = MultiSimilarity(MultiSimilarity.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.0

    References:
        Wang et al., "Multi-similarity loss with general pair weighting for deep metric learning",
        CVPR 2019; IDML, Eq. 16 and 17. https://arxiv.org/abs/1904.06627
    """

    REVISION = 1
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """alpha: α; 2 is the paper's value.
        beta: β; 50 is the paper's value, the authors' code has 40.
        threshold: λ; 0.5 is the value of the authors' code.
        epsilon: ε; 0.1 is the paper's value.

        mining: "max_plus_epsilon", the paper's; "none"; or "idml_printed", IDML's Eq. 16 as
            printed: max − ε for the positives, and pairs that are not mined count as pairs of
            similarity 0 instead of being left out.
        Sources: mining: the paper.
        """

        name: Literal["multi_similarity"] = "multi_similarity"
        alpha: float = Field(2.0, gt=0, le=1024, **log_range(0.5, 16, "2 in the paper"))
        beta: float = Field(50.0, gt=0, le=1024, **log_range(2, 100, "50 in the paper"))
        threshold: float = Field(0.5, ge=-1, le=1, **range_between(0, 1, "0.5 and 1 in the paper"))
        epsilon: float = Field(0.1, ge=0, le=2)
        mining: Literal["max_plus_epsilon", "none", "idml_printed"] = "max_plus_epsilon"

    options: Config

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean over anchors of the terms of mined positives and mined negatives."""
        options = self.options
        pos, neg, near, far = pairs.pos, pairs.neg, score, score
        if options.mining != "none":
            hard_pos, hard_neg = self._find_hard_pairs(score.detach(), pairs)
            if options.mining == "idml_printed":  # unmined pairs stay, with similarity 0
                near = torch.where(hard_pos, score, torch.zeros_like(score))
                far = torch.where(hard_neg, score, torch.zeros_like(score))
            else:
                pos, neg = pos * hard_pos, neg * hard_neg
        attract = log_one_plus_sum(-options.alpha * (near - options.threshold), pos)
        repel = log_one_plus_sum(options.beta * (far - options.threshold), neg)
        return (attract / options.alpha + repel / options.beta).mean()

    def _find_hard_pairs(self, score: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Return two masks [..., B, R] of pairs to keep: positives less similar than the anchor's
        nearest negative plus ε, and negatives more similar than its farthest positive minus ε.
        """
        epsilon = self.options.epsilon
        # The equation printed in IDML's paper has the other sign of ε for positive pairs.
        shift = -epsilon if self.options.mining == "idml_printed" else epsilon
        nearest = torch.where(pairs.neg > 0, score, -torch.inf).amax(-1, keepdim=True)
        farthest = torch.where(pairs.pos > 0, score, torch.inf).amin(-1, keepdim=True)
        return score < nearest + shift, score > farthest - epsilon


def log_one_plus_sum(exponent: Tensor, weights: Tensor) -> Tensor:
    """Return log(1 + Σ_R w e^x), [..., B], of exponents and weights [..., B, R]."""
    return log_one_plus_column_sum(exponent.mT, weights.mT)
