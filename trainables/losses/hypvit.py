"""HypViT's pairwise cross-entropy, in hyperbolic space and on the sphere.

Shape legend: B items of a batch · R the same as references · V views of a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs
from trainables.losses.views import PAIRS_UP, check_one_label, compare_classes, number_views

if TYPE_CHECKING:
    from trainables.config.sections import Trial
    from trainables.losses.base import Traits

NOTHING = -1e30  # log 0: far below any logit, and finite


class EntropyConfig(NamedConfig):
    """over: what the sum over positive pairs is divided by: their number ("pairs"), or the
    number of classes in the batch ("classes"), as the authors' code does, which adds up the
    M(M − 1) ordered pairs of views: for 9 images of a class 72 times the value. It matters
    where other terms stand beside the loss, as DDML's do, or gradients are clipped by norm."""

    over: Literal["pairs", "classes"] = "pairs"


class PairwiseEntropy(Loss):
    """Pairwise cross-entropy of Ermolov et al., "Hyperbolic vision transformers: combining
    improvements in metric learning", CVPR 2022, Eq. 6, with s = score:

        ℓ_ij = −log( e^{s_ij/τ} / Σ_{k≠i} e^{s_ik/τ} )

    for the positive pair (i, j) of a class, k over the two-image batch of one pair of each class.
    With M images of each class, as in the authors' code: for each ordered pair of views (u, v),
    the u-th images of all classes are the items and the v-th their positives, and k runs over
    the u-th and v-th images. Summed over positive pairs and divided as `over` says.

    Shapes: score [..., B, R] → scalar, the mean over leading dimensions. No positive pair: 0.
    """

    batch = BatchNeeds(per_class=2, layout="class_major")
    options: HypViT.Config | SphViT.Config

    @classmethod
    def check(cls, trial: Trial, method: Traits) -> None:
        check_one_label(trial, method, PAIRS_UP)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        logits = score / self.options.temperature
        same = compare_classes(pairs.labels)
        view = number_views(same).expand(logits.shape)
        # [i, v]: log Σ_k e^{logit_ik} over the images k ≠ i of view v
        of_view = logsumexp_by_group(
            logits, view, ~torch.eye(len(same), dtype=torch.bool, device=same.device)
        )
        own = of_view.gather(-1, view.diagonal(dim1=-2, dim2=-1)[..., None])
        others = of_view.gather(-1, view)
        loss = torch.logaddexp(own, others) - logits
        wanted = pairs.pos > 0
        loss = torch.where(wanted, pairs.pos * loss, torch.zeros_like(loss))
        # Each class has one first image.
        count = pairs.pos.sum() if self.options.over == "pairs" else (number_views(same) == 0).sum()
        return (loss.sum((-2, -1)) / torch.where(count > 0, count, 1)).mean()


def logsumexp_by_group(x: Tensor, group: Tensor, included: Tensor) -> Tensor:
    """Map [..., B, R] → [..., B, R]: at [i, g], log Σ e^x over the included columns of group g.

    group: [..., B, R] int64 below R. Groups without an included column give NOTHING.
    """
    shown = torch.where(included, x, NOTHING)
    top = torch.full_like(x, NOTHING).scatter_reduce(-1, group, shown.detach(), "amax")
    powers = torch.where(included, (shown - top.gather(-1, group)).exp(), 0)
    total = torch.zeros_like(x).scatter_add(-1, group, powers)
    there = total > 0
    return torch.where(there, torch.where(there, total, 1).log() + top, NOTHING)


@LOSSES.register("hypvit")
class HypViT(PairwiseEntropy):
    """Hyp-ViT's: s = −(distance in the Poincaré ball) of the embeddings, clipped and mapped there,
    see `geometry.hyperbolic_distance`. Retrieval is by the same distance.

    Example:
        >>> loss = HypViT(HypViT.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.15
    """

    REVISION = 2
    geometry = Geometry("hyperbolic", False, 0.1, 2.3)

    class Config(EntropyConfig):
        """temperature: τ; curvature: c; clip: r, the longest tangent vector. 0.2, 0.1 and 2.3 are
        the paper's."""

        name: Literal["hypvit"] = "hypvit"
        temperature: float = Field(0.2, gt=0, le=10)
        curvature: float = Field(0.1, gt=0, le=10)
        clip: float = Field(2.3, gt=0, le=100)

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.geometry = Geometry("hyperbolic", False, config.curvature, config.clip)


@LOSSES.register("sphvit")
class SphViT(PairwiseEntropy):
    """Sph-ViT's: s = cosine, the code's curvature 0.

    Example:
        >>> loss = SphViT(SphViT.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.027
    """

    REVISION = 1
    geometry = Geometry("cosine")

    class Config(EntropyConfig):
        """temperature: τ; 0.1 is the paper's."""

        name: Literal["sphvit"] = "sphvit"
        temperature: float = Field(0.1, gt=0, le=10)
