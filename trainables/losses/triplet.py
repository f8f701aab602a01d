"""Triplet losses: the positive nearer than the negative by a margin.

Shape legend: B anchors · R references · `...` leading dimensions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs
from trainables.losses.sampling import draw_negatives, inverse_density

Mining = Literal["all", "semihard", "semihard_all", "distance_weighted"]


class TripletConfig(NamedConfig):
    """What both triplet losses can be told.

    margin: α. 0.2 is FaceNet's for squared distances, and Wu et al.'s for plain ones.
    mining: which triplets (a, p, n) of the batch count, of all that there are.
        "all": every one.
        "semihard": for each (a, p) the nearest n beyond it, D_ap < D_an (IDML's Eq. 13); none
            where no negative lies beyond.
        "semihard_all": every n beyond, by less than the margin (FaceNet, section 3.2; the
            miner of pytorch-metric-learning).
        "distance_weighted": for each (a, p) one n drawn by `sampling.py`; D_an is the plain
            distance there, whatever the loss compares.
    average: over the triplets with a loss above 0 ("active"; Hermans et al., 2017), or over
        all that were mined ("mined"). The papers sum, which differs by the number of triplets.
    normalize: unit length first, as in FaceNet; distance-weighted sampling needs it.
    near, far: of the distance-weighted sampling.
    """

    margin: float = Field(0.2, ge=0, le=100)
    mining: Mining = "semihard"
    average: Literal["active", "mined"] = "active"
    normalize: bool = True
    near: float = Field(0.5, gt=0, lt=2)
    far: float = Field(1.4, gt=0, le=2)

    @model_validator(mode="after")
    def check_sampling(self) -> TripletConfig:
        if self.mining == "distance_weighted" and not self.normalize:
            raise ValueError(
                "mining distance_weighted needs normalize: true: its weights are those of points "
                "on the unit sphere"
            )
        return self


class Triplet(Loss):
    """Mean of [α + D(a, p) − D(a, n)]₊ over the mined triplets of each batch; D = −score.

    Shapes: score [..., B, R] → scalar, the mean over leading dimensions. No triplet: 0.
    Triplets are never listed: with the negatives of each anchor sorted and cumulated, the sum
    over them of every (a, p) is one look-up, in O(B R log R) time and O(B R) memory.
    """

    batch = BatchNeeds(per_class=2)
    options: TripletConfig

    def __init__(self, config: TripletConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.geometry = replace(self.geometry, normalize=config.normalize)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
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
        """Sum of losses, number above 0 and number, [..., B, R] of every (a, p), of one n each."""
        if self.options.mining == "semihard":
            ordered, _ = sort_negatives(distance, pairs.neg)
            place = torch.searchsorted(ordered.detach(), distance.detach(), right=True)
            chosen = ordered.gather(-1, place.clamp_max(ordered.shape[-1] - 1))
            there = (place < ordered.shape[-1]) & chosen.isfinite()
            chosen = torch.where(there, chosen, torch.zeros_like(chosen))
        else:
            plain = distance.detach()
            if self.geometry.kind == "l2sq":
                plain = plain.clamp_min(0).sqrt()
            near, far = self.options.near, self.options.far
            weights = inverse_density(plain, self.dim, near=near, far=far)
            chosen = distance.gather(-1, draw_negatives(weights, pairs.neg, generator))
            there = pairs.neg.sum(-1, keepdim=True) > 0
        mined = pairs.pos * there
        excess = self.options.margin + distance - chosen
        return mined * F.relu(excess), mined * (excess > 0), mined

    def _sum_over_all(self, distance: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """As `_one_each`, over every n, or every n beyond p."""
        ordered, weights = sort_negatives(distance, pairs.neg)
        limit = distance + self.options.margin
        finite = torch.where(ordered.isfinite(), ordered, torch.zeros_like(ordered))
        number, length = accumulate_sums(weights), accumulate_sums(weights * finite)
        edges = ordered.detach()
        end = torch.searchsorted(edges, limit.detach())
        if self.options.mining == "semihard_all":
            begin = torch.searchsorted(edges, distance.detach(), right=True).minimum(end)
        else:
            begin = torch.zeros_like(end)
        active = pairs.pos * (number.gather(-1, end) - number.gather(-1, begin))
        beyond = length.gather(-1, end) - length.gather(-1, begin)
        mined = active if self.options.mining == "semihard_all" else pairs.pos * number[..., -1:]
        return limit * active - pairs.pos * beyond, active, mined


def sort_negatives(distance: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """Return distances of each query's negatives, ascending, then ∞; and their weights. [..., B,
    R]."""
    ordered, order = torch.where(neg > 0, distance, torch.inf).sort(-1)
    return ordered, neg.expand_as(distance).gather(-1, order)


def accumulate_sums(x: Tensor) -> Tensor:
    """Map [..., R] → [..., R + 1]: sums of the first 0, 1, … R."""
    return F.pad(x.cumsum(-1), (1, 0))


@LOSSES.register("triplet_l2sq")
class TripletL2Sq(Triplet):
    """Triplet loss on squared distances (Schroff et al., "FaceNet", CVPR 2015, Eq. 2; DVML's
    Eq. 2, "Triplet"; with mining "semihard" the semi-hard one of IDML's appendix A.1):

        mean of [α + ‖a − p‖² − ‖a − n‖²]₊

    Example:
        >>> loss = TripletL2Sq(TripletL2Sq.Config(mining="all", margin=1), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.4
    """

    REVISION = 1
    geometry = Geometry("l2sq")

    class Config(TripletConfig):
        """See `TripletConfig`; semi-hard as in FaceNet."""

        name: Literal["triplet_l2sq"] = "triplet_l2sq"


@LOSSES.register("triplet_l2")
class TripletL2(Triplet):
    """Triplet loss on plain distances (DVML's Eq. 4, "Triplet2", after Wu et al., "Sampling
    matters in deep embedding learning", ICCV 2017):

        mean of [α + ‖a − p‖ − ‖a − n‖]₊

    Example:
        >>> loss = TripletL2(TripletL2.Config(mining="all", margin=1), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.4
    """

    REVISION = 1
    geometry = Geometry("l2")

    class Config(TripletConfig):
        """See `TripletConfig`; distance-weighted sampling as in DVML."""

        name: Literal["triplet_l2"] = "triplet_l2"
        mining: Mining = "distance_weighted"
