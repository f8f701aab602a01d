"""Smooth-AP: average precision of each item's ranking, with sigmoids in place of steps."""

from typing import Literal

from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses import smooth_ranks
from trainables.losses.base import LOSSES, BatchNeeds, Loss, Pairs


@LOSSES.register("smooth_ap")
class SmoothAP(Loss):
    """Maximise the smooth average precision of each item's ranking of the batch:

        L = 1 − mean over items i of  1/|P_i| Σ_{p∈P_i} r⁺(i, p) / r(i, p)
        r(i, p) = 1 + Σ_{j≠p} σ((s_ij − s_ip) / τ),   s = cosine

    P_i: the other items of i's class. j: in r all items but i, in r⁺ those of P_i. Items without
    positives are left out; a batch without positive pairs gives 0.

    Deviations: the docstring of the authors' code ranks the rest of the batch, without i, as
    retrieval does; their code includes i in the batch and in P_i, which adds a nearly constant
    1/|P_i| and shifts the other ranks by one (`include_query`).

    Example:
        >>> loss = SmoothAP(SmoothAP.Config(temperature=0.5), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.321

    References:
        Brown et al., "Smooth-AP: Smoothing the path towards large-scale image retrieval", ECCV
        2020. https://arxiv.org/abs/2007.12163. Ranks and sigmoids are those of the class SmoothAP
        in the authors' code, src/losses.py of https://github.com/Andrew-Brown1/Smooth_AP. That i
        is left out is what the docstring of this class says. With `include_query` the loss is what
        the code of this class and pytorch-metric-learning compute.
    """

    REVISION = 1
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """temperature: τ; 0.01 in the authors' code.
        include_query: whether an item is a positive in its own list, as in the authors' code.
        Sources: include_query: the docstring of SmoothAP in the authors' code, whose computation
            includes the query.
        """

        name: Literal["smooth_ap"] = "smooth_ap"
        temperature: float = Field(
            0.01, gt=0, le=10, **log_range(0.003, 0.1, "0.01 in the authors' code")
        )
        include_query: bool = False

    options: Config

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean over queries of 1 − the smooth average precision."""
        pos = smooth_ranks.add_queries(pairs.pos) if self.options.include_query else pairs.pos
        positive_score, in_use = smooth_ranks.gather_positives(score, pos)
        # both sums have σ(0) = 1/2 of the positive itself
        rank = 0.5 + smooth_ranks.sum_steps(
            score, positive_score, pos + pairs.neg, self._compute_step
        )
        rank_among_positives = 0.5 + smooth_ranks.sum_steps(
            positive_score, positive_score, in_use, self._compute_step
        )
        precision = (in_use * rank_among_positives / rank).sum(-1) / in_use.sum(-1).clamp_min(1)
        return smooth_ranks.average_over_queries(1 - precision, pairs.pos)

    def _compute_step(self, difference: Tensor) -> Tensor:
        return (difference / self.options.temperature).sigmoid()
