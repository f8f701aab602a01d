"""Proxy-NCA in Proxy-Anchor's form, the baseline of NIR: each item is compared with all proxies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import linear_range, log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.proxies import ClassLoss, Init
from trainables.losses.proxy_anchor import log_one_plus_column_sum


@LOSSES.register("proxy_nca_nir")
class ProxyNCANIR(ClassLoss):
    """Compare each item, as an anchor, with all proxies, as NIR states Proxy-NCA:

        L = 1/|B⁺| Σ_{x∈B⁺} log(1 + Σ_{p∈P_x⁺} e^{−α(s(x,p) − δ)})
          + 1/|B⁻| Σ_{x∈B⁻} log(1 + Σ_{p∈P_x⁻} e^{ α(s(x,p) + δ)}),   s = cosine

    It is Proxy-Anchor with the roles of items and proxies exchanged. P_x⁺ is the proxy of the
    item's class, P_x⁻ are all others; B⁺ are the items with a proxy in P⁺, B⁻ those with one in
    P⁻: the whole batch, if items have one label and there are two classes or more.

    Deviation from the public code: its positive term counts the proxy of a class once for each
    item y of that class in the batch, so that it is log(1 + n_y e^{−α(s(x,p) − δ)}) with n_y such
    items. Here, as in Eq. 6, each proxy counts once; with two images per class in a batch the two
    losses differed by 2 %.

    With label sets P_x⁺ is the set's proxies (the paper has one label per item). Pair weights in
    (0, 1) multiply the exponentials.

    Shape:
        score: [..., B, C]; the loss is the mean over leading dimensions.

    Example:
        >>> loss = ProxyNCANIR(ProxyNCANIR.Config(), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        8.001

    References:
        Roth et al., "Non-isotropy regularization for proxy-based deep metric learning", CVPR
        2022, Eq. 6. https://arxiv.org/abs/2203.08547
    """

    REVISION = 1
    geometry = Geometry("cosine")

    class Config(NamedConfig):
        """alpha: scale α; the paper states none, so the default is Proxy-Anchor's 32.
        margin: δ; the paper states none, so the default is Proxy-Anchor's 0.1.
        init: initial proxies, see `draw_initial_proxies`; the default is the public code's."""

        name: Literal["proxy_nca_nir"] = "proxy_nca_nir"
        alpha: float = Field(32.0, gt=0, le=1024, **log_range(8, 64, "32 in NIR's code"))
        margin: float = Field(0.1, ge=0, le=2, **linear_range(0, 0.5, "0.1 in NIR's code"))
        init: Init = "randn8"

    options: Config

    @property
    def logit_scale(self) -> float:
        """Return α."""
        return self.options.alpha

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        alpha, margin = self.options.alpha, self.options.margin
        attract = log_one_plus_column_sum((-alpha * (score - margin)).mT, pairs.pos.mT)
        repel = log_one_plus_column_sum((alpha * (score + margin)).mT, pairs.neg.mT)
        drawn = (pairs.pos > 0).any(-1).sum(-1).clamp_min(1)
        pushed = (pairs.neg > 0).any(-1).sum(-1).clamp_min(1)
        return (attract.sum(-1) / drawn + repel.sum(-1) / pushed).mean()
