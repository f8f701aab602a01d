"""Triplet losses: the positive nearer than the negative by a margin.

Shape legend: B anchors · R references · `...` leading dimensions.
"""

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs
from trainables.losses.margin import draw_negatives, inverse_density

Mining = Literal["all", "semihard", "semihard_all", "distance_weighted"]


class TripletConfig(NamedConfig):
    """Options of both triplet losses.

    margin: α; 0.2 is FaceNet's for squared distances, and Wu et al.'s for plain ones.
    mining: which triplets (a, p, n) of the batch count.
        "all": every triplet.
        "semihard": for each (a, p) the nearest n with D_ap < D_an (IDML's Eq. 13), if any.
        "semihard_all": every n with D_ap < D_an < D_ap + α (FaceNet, section 3.2; the miner of
            pytorch-metric-learning).
        "distance_weighted": for each (a, p) one n drawn by `draw_negatives`, by plain distances
            even if the loss compares squared ones.
    average: whether the mean is over the triplets with a loss above 0 ("active"; Hermans et al.,
        2017) or over all mined ones ("mined"). The papers sum.
    normalize: whether embeddings are L2-normalised first, as in FaceNet; distance-weighted
        sampling needs it.
    near, far: distances below which weights no longer grow, and from which on no negative is
        drawn, in distance-weighted sampling.
    Sources: margin: FaceNet and Wu et al.; mining: IDML's Eq. 13; average: Hermans et al.; near,
        far: Wu et al.'s code; normalize: FaceNet.
    """

    margin: float = Field(0.2, ge=0, le=100)
    mining: Mining = "semihard"
    average: Literal["active", "mined"] = "active"
    normalize: bool = True
    near: float = Field(0.5, gt=0, lt=2)
    far: float = Field(1.4, gt=0, le=2)

    @model_validator(mode="after")
    def check_sampling(self) -> "TripletConfig":
        if self.mining == "distance_weighted" and not self.normalize:
            raise ValueError(
                "mining distance_weighted needs normalize: true, because its weights hold for "
                "points on the unit sphere. Set normalize: true, or another mining."
            )
        return self


class Triplet(Loss):
    """Average [α + D(a, p) − D(a, n)]₊ over the mined triplets of each batch; D = −score.

    Triplets are never listed: the negatives of each anchor are sorted and summed cumulatively, so
    that the sum over them for one (a, p) is a look-up, in O(B R log R) time and O(B R) memory. A
    batch without triplets gives 0.
    """

    batch = BatchNeeds(per_class=2)
    options: TripletConfig

    def __init__(self, config: TripletConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.geometry = replace(self.geometry, normalize=config.normalize)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean of [α + D(a, p) − D(a, n)]₊ over mined triplets, or those above 0."""
        distance = -score
        if self.options.mining in ("all", "semihard_all"):
            total, active, mined = self._sum_over_all(distance, pairs)
        else:
            total, active, mined = self._sum_over_drawn(distance, pairs, generator)
        count = (active if self.options.average == "active" else mined).sum((-2, -1))
        return (total.sum((-2, -1)) / torch.where(count > 0, count, 1)).mean()

    def _sum_over_drawn(
        self, distance: Tensor, pairs: Pairs, generator: Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the triplet loss of every (a, p) with one negative, which is semi-hard or drawn.

        Returns:
            For each pair (a, p), [..., B, R]: the loss, the weight of triplets with a loss above 0,
            and the weight of mined triplets.
        """
        if self.options.mining == "semihard":
            ordered, _ = sort_negatives(distance, pairs.neg)
            # the nearest negative that is farther from a than p is
            position = torch.searchsorted(ordered.detach(), distance.detach(), right=True)
            negative_distance = ordered.gather(-1, position.clamp_max(ordered.shape[-1] - 1))
            has_negative = (position < ordered.shape[-1]) & negative_distance.isfinite()
            negative_distance = torch.where(has_negative, negative_distance, 0)
        else:
            euclidean = distance.detach()
            if self.geometry.kind == "l2sq":
                euclidean = euclidean.clamp_min(0).sqrt()
            near, far = self.options.near, self.options.far
            weights = inverse_density(euclidean, self.dim, near=near, far=far)
            negative_distance = distance.gather(-1, draw_negatives(weights, pairs.neg, generator))
            has_negative = pairs.neg.sum(-1, keepdim=True) > 0
        mined = pairs.pos * has_negative
        excess = self.options.margin + distance - negative_distance
        return mined * F.relu(excess), mined * (excess > 0), mined

    def _sum_over_all(self, distance: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """Sum the triplet losses of every (a, p) over all negatives, or over all semi-hard ones.

        Negatives with D_an < D_ap + α give a loss. They are a range of the sorted negatives, so
        that their number and total distance are differences of cumulative sums.

        Returns:
            As `_sum_over_drawn`: loss, weight of triplets with a loss, weight of mined triplets.
        """
        ordered, weights = sort_negatives(distance, pairs.neg)
        limit = distance + self.options.margin
        finite = torch.where(ordered.isfinite(), ordered, torch.zeros_like(ordered))
        # number and total distance of the nearest 0, 1, … R negatives, [..., B, R + 1] each
        number, sums = (F.pad(x.cumsum(-1), (1, 0)) for x in (weights, weights * finite))
        edges = ordered.detach()
        end = torch.searchsorted(edges, limit.detach())
        if self.options.mining == "semihard_all":
            begin = torch.searchsorted(edges, distance.detach(), right=True).minimum(end)
        else:
            begin = torch.zeros_like(end)
        active = pairs.pos * (number.gather(-1, end) - number.gather(-1, begin))
        active_sum = sums.gather(-1, end) - sums.gather(-1, begin)  # of distances of negatives
        mined = active if self.options.mining == "semihard_all" else pairs.pos * number[..., -1:]
        return limit * active - pairs.pos * active_sum, active, mined


def sort_negatives(distance: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """Return each query's distances to its negatives in ascending order, and their weights.

    Both are [..., B, R]; items that are no negatives come last, with distance ∞.
    """
    ordered, order = torch.where(neg > 0, distance, torch.inf).sort(-1)
    return ordered, neg.expand_as(distance).gather(-1, order)


@LOSSES.register("triplet_l2sq")
class TripletL2Sq(Triplet):
    """Compute the triplet loss of squared distances:

        mean of [α + ‖a − p‖² − ‖a − n‖²]₊

    Example:
        >>> loss = TripletL2Sq(TripletL2Sq.Config(mining="all", margin=1), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.4

    References:
        Schroff et al., "FaceNet: A unified embedding for face recognition and clustering", CVPR
        2015, Eq. 2; DVML, Eq. 2 ("Triplet"); IDML, appendix A.1 (mining "semihard").
        https://arxiv.org/abs/1503.03832
    """

    REVISION = 1
    geometry = Geometry("l2sq")

    class Config(TripletConfig):
        """See `TripletConfig`; semi-hard mining as in FaceNet."""

        name: Literal["triplet_l2sq"] = "triplet_l2sq"


@LOSSES.register("triplet_l2")
class TripletL2(Triplet):
    """Compute the triplet loss of plain distances:

        mean of [α + ‖a − p‖ − ‖a − n‖]₊

    Example:
        >>> loss = TripletL2(TripletL2.Config(mining="all", margin=1), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.4

    References:
        Wu et al., "Sampling matters in deep embedding learning", ICCV 2017; DVML, Eq. 4, as its
        second triplet loss. https://arxiv.org/abs/1706.07567
    """

    REVISION = 1
    geometry = Geometry("l2")

    class Config(TripletConfig):
        """Sources: mining: DVML, Eq. 4, with distance-weighted sampling."""

        name: Literal["triplet_l2"] = "triplet_l2"
        mining: Mining = "distance_weighted"
