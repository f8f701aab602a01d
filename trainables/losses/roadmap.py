"""ROADMAP: an upper bound of the loss of average precision (SupAP), with calibrated scores."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range, range_between
from trainables.config.registry import NamedConfig
from trainables.losses import smooth_ranks
from trainables.losses.base import LOSSES, BatchNeeds, Loss, Pairs
from trainables.losses.contrastive import average_excess

ROUNDING = 16  # units in the last place, below which a cosine is 1


@LOSSES.register("roadmap")
class Roadmap(Loss):
    """Bound the loss of average precision from above (SupAP), and calibrate similarities:

        L = (1 − λ) L_SupAP + λ L_calibration
        L_SupAP = 1 − mean over items i of  1/|P_i| Σ_{p∈P_i} r⁺(i, p) / (r⁺(i, p) + r⁻(i, p))
        L_calibration = mean of [a − s_ip]₊ over positive pairs + mean of [s_in − b]₊ over negative

        r⁺(i, p) = 1 + Σ_{j∈P_i, j≠p} H(s_ij − s_ip),   H(t) = [t ≥ 0], without gradient
        r⁻(i, p) = Σ_{n∈N_i} H⁻(s_in − s_ip)
        H⁻(t) = σ(t/τ) for t ≤ 0,  σ(t/τ) + h for 0 < t ≤ δ,  ρ (t − δ) + o beyond;   s = cosine

    P_i: the other items of i's class, N_i: the items of other classes. H⁻ ≥ H for t ≠ 0, h ≥ 1/2;
    its slope ρ beyond δ keeps the gradient of negatives that are far too close, where that of a
    sigmoid vanishes. Calibration aligns the similarities of different batches. Items without
    positives are left out; a batch without positive pairs has only the negative half of
    L_calibration.

    Deviations in the authors' codes, which the options cover where they matter: the query is a
    positive in its own list (`include_query`); o is a constant, which leaves a jump at δ
    (`offset`); the form ρ (t − δ) + o is that of SupRank, and a version of ROADMAP's code has
    ρ t + o, which jumps by ρ δ. ROADMAP's code adds both losses with the weights 1 and 1, which
    is 2 L with λ = 1/2; SupRank's has 0.9 and 0.1.

    Example:
        >>> loss = Roadmap(Roadmap.Config(), classes=2, dim=1)
        >>> x, y = torch.tensor([[0.0], [0.3], [0.9], [1.2]]), torch.tensor([0, 0, 1, 1])
        >>> pairs = make_pairs(y, y, self_index=torch.arange(4))
        >>> round(loss(1 - torch.cdist(x, x), pairs).item(), 3)
        0.1

    References:
        Ramzi et al., "Robust and decomposable average precision for image retrieval", NeurIPS
        2021, https://arxiv.org/abs/2110.01445, and "Optimization of rank losses for image
        retrieval", 2023, https://arxiv.org/abs/2309.08250. The equations are those of the authors'
        codes, roadmap/losses of https://github.com/elias-ramzi/ROADMAP and suprank/losses of
        https://github.com/elias-ramzi/SupRank.
    """

    REVISION = 1
    batch = BatchNeeds(per_class=2)

    class Config(NamedConfig):
        """temperature: τ. slope: ρ. delta: δ, where the slope begins.
        start: h, the jump of H⁻ at 0; 0 in the authors' code for iNaturalist.
        offset: o; None: σ(δ/τ) + h, with which H⁻ has no jump at δ. 1.44 in the authors' code, 1
            for iNaturalist.
        calibration: λ; 0 is SupAP alone.
        positive_margin: a. negative_margin: b.
        average: whether each mean of the calibration is over the pairs with a loss above 0
            ("active", the authors' code) or over all pairs ("all").
        include_query: whether an item is a positive in its own list, as in the authors' code.
        Sources: start, positive_margin, negative_margin, average: the authors' code for CUB and
            SOP; offset, include_query: this project.
        """

        name: Literal["roadmap"] = "roadmap"
        temperature: float = Field(
            0.01, gt=0, le=10, **log_range(0.003, 0.1, "0.01 in the authors' code")
        )
        slope: float = Field(100.0, ge=0, le=1e6, **log_range(10, 1000, "100 in the authors' code"))
        delta: float = Field(0.05, ge=0, le=2, **log_range(0.01, 0.2, "0.05 in the authors' code"))
        start: float = Field(0.5, ge=0, le=10)
        offset: float | None = Field(None, ge=0, le=1e6)
        calibration: float = Field(
            0.5, ge=0, le=1, **range_between(0, 0.9, "0.5 and 0.1 in the authors' codes")
        )
        positive_margin: float = Field(0.9, ge=-1, le=1)
        negative_margin: float = Field(0.6, ge=-1, le=1)
        average: Literal["active", "all"] = "active"
        include_query: bool = False

    options: Config

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return (1 − λ) L_SupAP + λ L_calibration."""
        share = self.options.calibration
        return (1 - share) * self._compute_sup_ap(score, pairs) + share * self._compute_calibration(
            score, pairs
        )

    def _compute_sup_ap(self, score: Tensor, pairs: Pairs) -> Tensor:
        """Return L_SupAP."""
        pos = smooth_ranks.add_queries(pairs.pos) if self.options.include_query else pairs.pos
        positive_score, in_use = smooth_ranks.gather_positives(score, pos)
        own = positive_score.detach()
        # the positive itself counts as 1, the first summand of r⁺
        rank_among_positives = smooth_ranks.sum_steps(
            own, own, in_use, lambda t: (t >= 0).to(t.dtype)
        )
        closer_negatives = smooth_ranks.sum_steps(
            score, positive_score, pairs.neg, self._compute_step
        )
        rank = torch.where(in_use, rank_among_positives + closer_negatives, 1)
        precision = (in_use * rank_among_positives / rank).sum(-1) / in_use.sum(-1).clamp_min(1)
        return smooth_ranks.average_over_queries(1 - precision, pairs.pos)

    def _compute_step(self, difference: Tensor) -> Tensor:
        """Return H⁻ of a difference of similarities."""
        options = self.options
        smooth = (difference / options.temperature).sigmoid()
        offset = options.offset
        if offset is None:
            offset = 1 / (1 + math.exp(-options.delta / options.temperature)) + options.start
        linear = options.slope * (difference - options.delta) + offset
        near = torch.where(difference > 0, smooth + options.start, smooth)
        return torch.where(difference > options.delta, linear, near)

    def _compute_calibration(self, score: Tensor, pairs: Pairs) -> Tensor:
        """Return the mean of [a − s]₊ over positive pairs plus that of [s − b]₊ over negatives."""
        # Rounding changes a cosine of 1 by a few units in the last place. With a = 1 it would
        # decide whether two equal items are an active pair.
        rounding = ROUNDING * torch.finfo(score.dtype).eps
        exact = torch.where(score > 1 - rounding, 1, score)
        average, far = self.options.average, self.options.positive_margin - exact
        near = score - self.options.negative_margin
        attract = average_excess(far, pairs.pos, average=average)
        return attract.mean() + average_excess(near, pairs.neg, average=average).mean()
