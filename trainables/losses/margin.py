"""Margin loss: positives within, negatives beyond a learnt distance β; distance-weighted sampling.

Shape legend: B queries · R references · D embedding dimensions · `...` leading dimensions.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from trainables.config.ranges import range_between
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs, ParamGroup


@LOSSES.register("margin")
class Margin(Loss):
    """Hold positives within and negatives beyond a learnt distance β:

        [α + D_ap − β]₊  over all pairs (a, p) of a class,
        [α + β − D_an]₊  over one negative n drawn for each (a, p)

    Both are summed and divided by the number of pairs with a loss above 0, as in the authors'
    code. D is the distance of unit vectors. β is learnt, one number or one per class of the
    anchor (the mean over a label set), in the parameter group "margins".

    Logged:
        beta: the regulariser ν · β before its weight ν: the mean of β over its entries.

    Deviations: the authors' code sums β over the anchors of the batch and divides by the number of
    active pairs, so that its ν (0 there and here) has another scale. The paper's per-image β is
    left out, as in the authors' code.

    Example:
        >>> loss = Margin(Margin.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> draws = torch.Generator().manual_seed(0)  # for negatives
        >>> loss(-torch.cdist(x, x), pairs, generator=draws).item() > 0
        True

    References:
        Wu et al., "Sampling matters in deep embedding learning", ICCV 2017, Eq. 5 to 7, and
        section 4 for the sampling. https://arxiv.org/abs/1706.07567
    """

    REVISION = 1
    geometry = Geometry("l2")
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """margin: α; 0.2 is the authors' value.
        beta: initial β; 1.2 is the authors' value.

        beta_of: one β for each "class", or one for "all" classes.
        nu: weight ν of the mean β.
        sampling: how negatives are drawn, "distance_weighted" or "uniform".
        near, far: distances below which weights no longer grow, and from which on no negative is
            drawn, in distance-weighted sampling.
        Sources: beta_of, nu, sampling, near, far: the authors' code.
        """

        name: Literal["margin"] = "margin"
        margin: float = Field(0.2, ge=0, le=2, **range_between(0.05, 0.5, "0.2 in the paper"))
        beta: float = Field(1.2, ge=0, le=2, **range_between(0.6, 1.4, "1.2 in the paper"))
        beta_of: Literal["class", "all"] = "class"
        nu: float = Field(0.0, ge=0)
        sampling: Literal["distance_weighted", "uniform"] = "distance_weighted"
        near: float = Field(0.5, gt=0, lt=2)
        far: float = Field(1.4, gt=0, le=2)

    options: Config

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.beta = nn.Parameter(
            torch.full((classes if config.beta_of == "class" else 1,), config.beta)
        )

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean of losses above 0: [α + D − β]₊ of positives, [α + β − D]₊ of negatives.

        D is −score, β the boundary of the anchor's class; each positive pair draws one negative.
        """
        distance, beta = -score, self._look_up_beta(pairs.labels)
        negatives = self.draw_negatives(distance.detach(), pairs, generator)
        pull = self.options.margin + distance - beta
        push = self.options.margin + beta - distance.gather(-1, negatives)
        push_weight = pairs.pos * (pairs.neg.sum(-1, keepdim=True) > 0)
        total = pairs.pos * F.relu(pull) + push_weight * F.relu(push)
        active = pairs.pos * (pull > 0) + push_weight * (push > 0)
        count = active.sum((-2, -1))
        return (total.sum((-2, -1)) / torch.where(count > 0, count, 1)).mean()

    def draw_negatives(self, distance: Tensor, pairs: Pairs, generator: Generator | None) -> Tensor:
        """Return the column of a random negative of anchor a for each pair (a, p), [..., B, R]."""
        if self.options.sampling == "uniform":
            return draw_negatives(torch.zeros_like(distance), pairs.neg, generator)
        near, far = self.options.near, self.options.far
        weights = inverse_density(distance, self.dim, near=near, far=far)
        return draw_negatives(weights, pairs.neg, generator)

    def penalty(self) -> dict[str, tuple[Tensor, float]]:
        return {"beta": (self.beta.mean(), self.options.nu)}

    def param_groups(self) -> list[ParamGroup]:
        return [ParamGroup("margins", [self.beta])]

    def _look_up_beta(self, labels: Tensor) -> Tensor:
        """Return β of each anchor, [B, 1], averaged over its labels [B, S]; or the only β, [1]."""
        if len(self.beta) == 1 and self.classes != 1:  # β is not of an only class
            return self.beta
        used = labels >= 0
        label_betas = torch.where(used, self.beta[labels.clamp_min(0)], 0)
        return (label_betas.sum(-1) / used.sum(-1))[:, None]


def inverse_density(distance: Tensor, dim: int, *, near: float, far: float) -> Tensor:
    """Return the log weights log 1/q(d) of negatives at `distance[..., B, R]`, −∞ from `far` on.

    Drawn with these weights, negatives of all distances are equally frequent. q is the density of
    the distance d of two independent uniform points on the unit sphere,

        q(d) ∝ d^(D−2) · (1 − d²/4)^((D−3)/2)

    so that for large D almost all points are √2 apart (Wu et al., section 4).

    Args:
        near: smaller distances count as `near`, which bounds the weights as the paper's
            min(λ, 1/q) does; 0.5 in the authors' code.
        far: negatives at this distance or more are not drawn, because their loss would be 0; 1.4
            in the authors' code. Nor are negatives from 2 on, the diameter of the unit sphere.
    """
    d = distance.clamp_min(max(near, 1e-6))
    below_far = (d < far) & (d < 2)
    inside = torch.where(below_far, d, torch.ones_like(d))
    log_q = (dim - 2) * inside.log() + (dim - 3) / 2 * torch.log1p(-0.25 * inside.square())
    return torch.where(below_far, -log_q, torch.full_like(d, -torch.inf))


@torch.no_grad()
def draw_negatives(log_weights: Tensor, neg: Tensor, generator: Generator | None = None) -> Tensor:
    """Return the column of a negative for each (query, reference) pair, [..., B, R].

    The draws are independent: P(n) ∝ neg[..., B, n] · exp(log_weights[..., B, n]). The negative at
    [i, p] completes the triplet of anchor i and positive p. If all negatives of a query have the
    log weight −∞, the draw is uniform among them (the authors' code draws from positives too). A
    query without negatives gets index 0, which the caller masks.

    Each draw looks a uniform number up in the cumulative weights. There are always B · R draws, so
    that the generator's state does not depend on the data.
    """
    allowed = neg > 0
    # cumulate the weights of each query, relative to its largest one
    logs = torch.where(allowed, log_weights + neg.clamp_min(1e-30).log(), -torch.inf)
    top = logs.amax(-1, keepdim=True)
    reachable = top > -torch.inf
    weights = (logs - torch.where(reachable, top, torch.zeros_like(top))).exp()
    cumulated = torch.where(reachable, weights, neg.to(weights.dtype)).cumsum(-1)
    total = cumulated[..., -1:]
    u = torch.rand(
        cumulated.shape, generator=generator, device=cumulated.device, dtype=cumulated.dtype
    )
    last = (cumulated >= total).int().argmax(-1, keepdim=True)  # last column with a weight above 0
    return torch.searchsorted(cumulated, u * total, right=True).minimum(last)
