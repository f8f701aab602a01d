"""HypViT's pairwise cross-entropy, in hyperbolic space and on the sphere.

Shape legend: B items of a batch · R the same as references · V views of a class.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import (
    LOG_OF_0,
    LOSSES,
    Geometry,
    PairedLoss,
    Pairs,
    number_within_class,
)


class EntropyConfig(NamedConfig):
    """over: divisor of the sum over positive pairs: their number ("pairs"), or the number of
    classes in the batch ("classes"), as in the authors' code, which sums over the M(M − 1)
    ordered pairs of views (72 times the value for 9 images of a class). The choice matters
    if other terms are added to the loss, as in DDML, or gradients are clipped by norm.
    Sources: over: this project."""

    over: Literal["pairs", "classes"] = "pairs"


class PairwiseEntropy(PairedLoss):
    """Classify, for each positive pair, the positive among the other items of its batch:

        ℓ_ij = −log( e^{s_ij/τ} / Σ_{k≠i} e^{s_ik/τ} )

    s is the score, (i, j) the positive pair of a class, and k runs over a batch of one pair of
    each class. With M images of each class, as in the authors' code: for each ordered pair of
    views (u, v), the u-th images of all classes are the items and the v-th their positives, and k
    runs over the u-th and v-th images. The sum over positive pairs is divided by `over`. A batch
    without positive pairs gives 0.

    References:
        Ermolov et al., "Hyperbolic vision transformers: Combining improvements in metric
        learning", CVPR 2022, Eq. 6. https://arxiv.org/abs/2203.10833
    """

    options: "HypViT.Config | SphViT.Config"

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the cross-entropy of each positive pair (i, j) of score[..., B, R], averaged.

        A view is an image's number within its class. Image j competes with all images, except i,
        that have the view of i or of j.
        """
        logits = score / self.options.temperature
        _, item_view = number_within_class(pairs.labels)
        view = item_view.expand(logits.shape)
        # view_sums[i, v] is log Σ_k e^{logit_ik} over the images k ≠ i of view v
        others = ~torch.eye(len(item_view), dtype=torch.bool, device=logits.device)
        view_sums = logsumexp_by_group(logits, view, others)
        query_view_sum = view_sums.gather(-1, view.diagonal(dim1=-2, dim2=-1)[..., None])
        positive_view_sum = view_sums.gather(-1, view)
        loss = torch.logaddexp(query_view_sum, positive_view_sum) - logits
        loss = torch.where(pairs.pos > 0, pairs.pos * loss, torch.zeros_like(loss))
        # Each class has exactly one image of view 0, so these count the classes.
        count = pairs.pos.sum() if self.options.over == "pairs" else (item_view == 0).sum()
        return (loss.sum((-2, -1)) / torch.where(count > 0, count, 1)).mean()


def logsumexp_by_group(x: Tensor, group: Tensor, included: Tensor) -> Tensor:
    """Return [..., B, R]: at [i, g] log Σ e^x over the included columns of group g in row i.

    A group without included columns gives LOG_OF_0 (−1e30).

    Args:
        group: [..., B, R] int64 below R, the group of each entry of x[..., B, R].
        included: [B, R], the entries that count.
    """
    masked = torch.where(included, x, LOG_OF_0)
    top = torch.full_like(x, LOG_OF_0).scatter_reduce(-1, group, masked.detach(), "amax")
    powers = torch.where(included, (masked - top.gather(-1, group)).exp(), 0)
    total = torch.zeros_like(x).scatter_add(-1, group, powers)
    nonempty = total > 0
    return torch.where(nonempty, torch.where(nonempty, total, 1).log() + top, LOG_OF_0)


@LOSSES.register("hypvit")
class HypViT(PairwiseEntropy):
    """Apply the pairwise cross-entropy to s = −(distance in the Poincaré ball), as Hyp-ViT.

    The distance is (2/√c) artanh(√c ‖(−x) ⊕ y‖) of the images x, y of two embeddings under the
    exponential map. Retrieval uses the same distance.

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
        """temperature: τ; 0.2 is the paper's value.
        curvature: c; 0.1 is the paper's value.
        clip: r, length to which longer tangent vectors are shortened; 2.3 is the paper's value."""

        name: Literal["hypvit"] = "hypvit"
        temperature: float = Field(0.2, gt=0, le=10, **log_range(0.02, 0.5, "0.1 and 0.2 in paper"))
        curvature: float = Field(0.1, gt=0, le=10, **log_range(0.01, 1, "0.1 in the paper"))
        clip: float = Field(2.3, gt=0, le=100)

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.geometry = Geometry("hyperbolic", False, config.curvature, config.clip)


@LOSSES.register("sphvit")
class SphViT(PairwiseEntropy):
    """Apply the pairwise cross-entropy to cosines, as Sph-ViT (curvature 0 in the public code).

    Example:
        >>> loss = SphViT(SphViT.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.027
    """

    REVISION = 1

    class Config(EntropyConfig):
        """temperature: τ; 0.1 is the paper's value."""

        name: Literal["sphvit"] = "sphvit"
        temperature: float = Field(0.1, gt=0, le=10, **log_range(0.02, 0.5, "0.1 in the paper"))
