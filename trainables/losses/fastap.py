"""FastAP: average precision of each item's ranking, over a histogram of its distances."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, BatchNeeds, Geometry, Loss, Pairs
from trainables.losses.smooth_ranks import average_over_queries

FARTHEST = 4.0  # squared distance of opposite unit vectors


@LOSSES.register("fastap")
class FastAP(Loss):
    """Maximise the average precision of each item's ranking, over a histogram of distances:

        L = 1 − mean over items of  1/N⁺ Σ_j h⁺_j H⁺_j / H_j

    h⁺_j, h_j: how many positives, and items, are in bin j of the squared distance of unit
    vectors in [0, 4]; H: their cumulative sums. Counts are soft: an item between two of the
    equally spaced centres is divided between them linearly. Items without positives are left out;
    a batch without positive pairs gives 0. The memory is B · R · (bins + 1).

    Example:
        >>> loss = FastAP(FastAP.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(-torch.cdist(x, x), pairs).item(), 3)
        0.125

    References:
        Cakir et al., "Deep metric learning to rank", CVPR 2019, Eq. 6 to 9.
        https://openaccess.thecvf.com/content_CVPR_2019/html/Cakir_Deep_Metric_Learning_to_Rank_CVPR_2019_paper.html
    """

    REVISION = 1
    geometry = Geometry("l2sq")
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """bins: number of intervals of the histogram, whose bins + 1 edges are its centres; 10 is
        the authors' value."""

        name: Literal["fastap"] = "fastap"
        bins: int = Field(10, ge=1, le=1000)

    options: Config

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean over queries of 1 − average precision; −score is a squared distance."""
        position = (-score).clamp(0, FARTHEST) * (self.options.bins / FARTHEST)
        centres = torch.arange(self.options.bins + 1, device=score.device, dtype=score.dtype)
        # [..., B, R, bins + 1]: each item is shared between the two bins nearest to its position
        share = F.relu(1 - (position[..., None] - centres).abs())
        positives = (share * pairs.pos[..., None]).sum(-2)
        items = positives + (share * pairs.neg[..., None]).sum(-2)
        # the precision among all items up to each bin
        positives_so_far, items_so_far = positives.cumsum(-1), items.cumsum(-1)
        precision = positives_so_far / torch.where(items_so_far > 0, items_so_far, 1)
        # the mean of that precision over a query's positives
        count = pairs.pos.sum(-1)
        average = (positives * precision).sum(-1) / torch.where(count > 0, count, 1)
        return average_over_queries(1 - average, pairs.pos)
