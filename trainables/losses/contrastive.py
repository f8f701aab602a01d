"""Contrastive loss: positives together, negatives apart by a margin."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import range_between
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs


@LOSSES.register("contrastive")
class Contrastive(Loss):
    """Pull positive pairs within a margin and push negative pairs beyond one:

        mean over positive pairs of  ℓ(D − m⁺)  +  mean over negative pairs of  ℓ(m − D)

    with D = −score, the distance of unit vectors, and ℓ(x) = [x]₊ ("linear", IDML's; m⁺ = 0) or
    ½ [x]₊² ("squared", Hadsell's). Without pairs of one kind that mean is 0.

    Deviations: both papers sum over the pairs; here positives and negatives each have a mean, so
    that their weights do not depend on the number of classes.

    Example:
        >>> loss = Contrastive(Contrastive.Config(margin=0.5), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.3

    References:
        Hadsell et al., "Dimensionality reduction by learning an invariant mapping", CVPR 2006,
        Eq. 4; IDML, Eq. 15. https://doi.org/10.1109/CVPR.2006.100
    """

    REVISION = 1
    geometry = Geometry("l2")
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """margin: m. Neither paper states it; 1 is the value of Musgrave et al., "A metric
            learning reality check", ECCV 2020.
        pos_margin: m⁺; 0 is from the same comparison.

        form: "linear" or "squared", see the class.
        average: whether each mean is over the pairs with a loss above 0 ("active") or over all
            pairs ("all").
        normalize: whether embeddings are L2-normalised first.
        Sources: pos_margin, average, normalize: Musgrave et al.; form: IDML.
        """

        name: Literal["contrastive"] = "contrastive"
        margin: float = Field(1.0, ge=0, le=100, **range_between(0.2, 1.5, "around the default"))
        pos_margin: float = Field(0.0, ge=0, le=100)
        form: Literal["linear", "squared"] = "linear"
        average: Literal["active", "all"] = "active"
        normalize: bool = True

    options: Config

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.geometry = Geometry("l2", config.normalize)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the means of ℓ(D − m⁺) over positive and ℓ(m − D) over negative pairs, added."""
        distance = -score
        options = {"average": self.options.average, "form": self.options.form}
        attract = average_excess(distance - self.options.pos_margin, pairs.pos, **options)
        repel = average_excess(self.options.margin - distance, pairs.neg, **options)
        return (attract + repel).mean()


def average_excess(
    excess: Tensor, weights: Tensor, *, average: str, form: str = "linear"
) -> Tensor:
    """Average [excess]₊ (½ [excess]₊² if "squared") over pairs; "active" leaves out zeros."""
    value = F.relu(excess)
    if form == "squared":
        value = 0.5 * value.square()
    count_weights = weights * (excess > 0) if average == "active" else weights
    count = count_weights.sum((-2, -1))
    return (weights * value).sum((-2, -1)) / torch.where(count > 0, count, 1)
