"""Margin loss: positives within, negatives beyond a learnt distance β."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs, ParamGroup
from trainables.losses.sampling import draw_negatives, inverse_density


@LOSSES.register("margin")
class Margin(Loss):
    """Margin loss with distance-weighted sampling (Wu et al., "Sampling matters in deep embedding
    learning", ICCV 2017, Eq. 5 to 7, and section 4 for the sampling):

        [α + D_ap − β]₊  over all pairs (a, p) of a class,
        [α + β − D_an]₊  over one negative n drawn for each (a, p);

    both summed and divided by the number of pairs with a loss above 0, as in the authors' code.
    D is the distance of unit vectors. β is learnt, one number or one per class of the anchor, in
    the parameter group "margins"; of label sets, the mean over the set.

    The regulariser ν · β is the term "beta", whose value is the mean of β over its entries. The
    authors' code sums it over the anchors of the batch and divides by the number of active
    pairs, so that its ν (0 there, and here) means something else. Left out: the paper's
    per-image β, which the authors' code has neither.

    Shapes: score [..., B, R] → scalar, the mean over leading dimensions.

    Example:
        >>> loss = Margin(Margin.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> draws = torch.Generator().manual_seed(0)  # for negatives
        >>> loss(-torch.cdist(x, x), pairs, generator=draws).item() > 0
        True
    """

    REVISION = 1
    geometry = Geometry("l2")
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """margin: α; beta: β at the start; 0.2 and 1.2 are the authors'.

        beta_of: one β for each "class" or one for "all".
        nu: weight ν of the mean β.
        sampling: "distance_weighted", or "uniform" over the negatives.
        near, far: of the distance-weighted sampling, see `sampling.py`.
        """

        name: Literal["margin"] = "margin"
        margin: float = Field(0.2, ge=0, le=2)
        beta: float = Field(1.2, ge=0, le=2)
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
        distance, beta = -score, self._look_up_beta(pairs.labels)
        chosen = distance.gather(-1, self.draw_negatives(distance.detach(), pairs, generator))
        within = self.options.margin + distance - beta
        beyond = self.options.margin + beta - chosen
        drawn = pairs.pos * (pairs.neg.sum(-1, keepdim=True) > 0)
        total = pairs.pos * F.relu(within) + drawn * F.relu(beyond)
        active = pairs.pos * (within > 0) + drawn * (beyond > 0)
        count = active.sum((-2, -1))
        return (total.sum((-2, -1)) / torch.where(count > 0, count, 1)).mean()

    def draw_negatives(self, distance: Tensor, pairs: Pairs, generator: Generator | None) -> Tensor:
        """Return [..., B, R]: the negative drawn for every (a, p)."""
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
        """Map [B, S] → [B, 1] or [1]."""
        if len(self.beta) == 1 and self.classes != 1:
            return self.beta
        used = labels >= 0
        of_each = torch.where(used, self.beta[labels.clamp_min(0)], 0)
        return (of_each.sum(-1) / used.sum(-1))[:, None]
