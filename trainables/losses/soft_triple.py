"""SoftTriple: a softmax over classes that have several centres each."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Pairs
from trainables.losses.geometry import safe_sqrt
from trainables.losses.proxies import ClassLoss, Init
from trainables.losses.softmax import soft_cross_entropy


@LOSSES.register("soft_triple")
class SoftTriple(ClassLoss):
    """Compute softmax cross-entropy over classes that have K centres each:

        S_ic = Σ_k softmax_k(s_ick / γ) s_ick,   s_ick = cos(x_i, w_ck)
        L    = −1/B Σ_i Σ_c t_ic log softmax_c(λ (S_ic − δ [c is a class of item i]))
        R    = 1/(C K (K − 1)) Σ_c Σ_{k<l} ‖w_ck − w_cl‖,   w normalised

    The softmax over a class's centres is the maximiser of their similarity with an entropy
    regulariser of weight γ. R merges centres that a class does not need; it has weight τ and is
    absent for K = 1.

    Logged:
        centres: R, the mean distance of a class's centres, before its weight.

    Deviations: equal centres get no gradient; the public code adds 1e-5 below the root instead.

    With label sets each class of the set gets the margin, and t_i is uniform over the set; with
    fractional pair weights both are in proportion. A query without a positive counts as 0.

    Example:
        >>> loss = SoftTriple(SoftTriple.Config(centres=1), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.0

    References:
        Qian et al., "SoftTriple loss: Deep metric learning without triplet sampling", ICCV 2019.
        https://arxiv.org/abs/1909.05235
    """

    REVISION = 1
    VECTORS = "centres"

    class Config(NamedConfig):
        """centres: K; 10 is the paper's value for CUB and Cars, and 2 for SOP, where classes are
            small.

        scale: λ; 20 is the paper's value.
        gamma: γ; 0.1 is the paper's value.
        margin: δ; 0.01 is the paper's value.
        tau: weight τ of R; 0.2 is the paper's value.
        init: initial centres, see `draw_initial_proxies`; the default is the public code's.
        """

        name: Literal["soft_triple"] = "soft_triple"
        centres: int = Field(10, ge=1, le=1000)
        scale: float = Field(20.0, gt=0, le=1024, **log_range(5, 50, "20 in the paper"))
        gamma: float = Field(0.1, gt=0, le=100, **log_range(0.02, 1, "0.1 in the paper"))
        margin: float = Field(0.01, ge=0, le=2, **log_range(1e-3, 0.2, "0.01 in the paper"))
        tau: float = Field(0.2, ge=0)
        init: Init = "kaiming_uniform"

    options: Config

    def __init__(self, config: Config, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim, per_class=config.centres)
        above_diagonal = torch.ones(self.per_class, self.per_class).triu(1)
        self.register_buffer("above_diagonal", above_diagonal, persistent=False)
        self.above_diagonal: Tensor

    @property
    def logit_scale(self) -> float:
        return self.options.scale

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the cross-entropy of score[..., B, C·K], with K adjacent centres per class."""
        similarity = score.reshape(*score.shape[:-1], self.classes, self.per_class)
        # [..., B, C]: the mean over the centres of each class, weighted by a softmax
        relaxed = ((similarity / self.options.gamma).softmax(-1) * similarity).sum(-1)
        weights = pairs.pos[..., :: self.per_class].to(score.dtype)  # one column for each class
        logits = self.options.scale * (relaxed - self.options.margin * weights)
        return soft_cross_entropy(logits, weights)

    def penalty(self) -> dict[str, tuple[Tensor, float]]:
        """Return the mean distance of a class's centres, to merge those that it does not need."""
        if self.per_class == 1:
            return {}
        centres = self.get_parameter(self.VECTORS)
        w = F.normalize(centres, dim=-1).view(self.classes, self.per_class, -1)
        distances = safe_sqrt(2 - 2 * (w @ w.mT)) * self.above_diagonal
        pairs = self.classes * self.per_class * (self.per_class - 1)  # both (k, l) and (l, k)
        return {"centres": (distances.sum() / pairs, self.options.tau)}
