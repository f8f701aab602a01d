"""Proxy-Anchor compares each proxy with the batch, NIR's Proxy-NCA each item with all proxies."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range, range_between
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOG_OF_0, LOSSES, Pairs
from trainables.losses.proxies import ClassLoss, Init


@LOSSES.register("proxy_anchor")
class ProxyAnchor(ClassLoss):
    """Compare each proxy, as an anchor, with all items of the batch:

        L = 1/|P⁺| Σ_{p∈P⁺} log(1 + Σ_{x∈X_p⁺} e^{−α(s(x,p) − δ)})
          + 1/|P|  Σ_{p∈P}  log(1 + Σ_{x∈X_p⁻} e^{ α(s(x,p) + δ)}),   s = cosine

    P⁺ are the proxies with a positive in the batch; there is one proxy per class. It is computed
    as softplus(logsumexp(·)), which equals the printed form without overflow. Pair weights in
    (0, 1) multiply the exponentials.

    Example:
        >>> loss = ProxyAnchor(ProxyAnchor.Config(alpha=16), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        4.024

    References:
        Kim et al., "Proxy anchor loss for deep metric learning", CVPR 2020, Eq. 4.
        https://arxiv.org/abs/2003.13911
    """

    REVISION = 1

    class Config(NamedConfig):
        """alpha: scale α; 32 is the paper's value.
        margin: δ; 0.1 is the paper's value.
        init: initial proxies, see `draw_initial_proxies`; the default is the public code's, and
            NIR uses randn8."""

        name: Literal["proxy_anchor"] = "proxy_anchor"
        alpha: float = Field(32.0, gt=0, le=1024, **log_range(8, 64, "32 in the paper"))
        margin: float = Field(0.1, ge=0, le=2, **range_between(0, 0.5, "0.1 in the paper"))
        init: Init = "kaiming"

    options: Config

    @property
    def logit_scale(self) -> float:
        return self.options.alpha

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean attraction of proxies by positives + mean repulsion by negatives, with
        proxies (columns of score[..., B, C]) as anchors and items as positives and negatives.
        """
        alpha, margin = self.options.alpha, self.options.margin
        attract = log_one_plus_column_sum(-alpha * (score - margin), pairs.pos)
        repel = log_one_plus_column_sum(alpha * (score + margin), pairs.neg)
        # the number of proxies that have a positive in the batch
        present = (pairs.pos.sum(-2) > 0).sum(-1).clamp_min(1)
        return (attract.sum(-1) / present + repel.mean(-1)).mean()


@LOSSES.register("proxy_nca_nir")
class ProxyNCANIR(ProxyAnchor):
    """Compare each item, as an anchor, with all proxies, as NIR states Proxy-NCA:

        L = 1/|B⁺| Σ_{x∈B⁺} log(1 + Σ_{p∈P_x⁺} e^{−α(s(x,p) − δ)})
          + 1/|B⁻| Σ_{x∈B⁻} log(1 + Σ_{p∈P_x⁻} e^{ α(s(x,p) + δ)}),   s = cosine

    It is Proxy-Anchor with the roles of items and proxies exchanged. P_x⁺ is the proxy of the
    item's class, P_x⁻ are all others; B⁺ are the items with a proxy in P⁺, B⁻ those with one in
    P⁻: the whole batch, if items have one label and there are two classes or more.

    Deviations: in the public code the positive term counts the proxy of a class once for each
    item y of that class in the batch, so that it is log(1 + n_y e^{−α(s(x,p) − δ)}) with n_y such
    items. Here, as in Eq. 6, each proxy counts once; with two images per class in a batch the two
    losses differed by 2 %.

    With label sets P_x⁺ is the set's proxies (the paper has one label per item). Pair weights in
    (0, 1) multiply the exponentials.

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

    class Config(ProxyAnchor.Config):
        """alpha, margin: the paper states neither, so the defaults are Proxy-Anchor's.
        init: initial proxies, see `draw_initial_proxies`; the default is the public code's."""

        name: Literal["proxy_nca_nir"] = "proxy_nca_nir"  # type: ignore[assignment]
        init: Init = "randn8"

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the mean attraction of items by their proxies + mean repulsion by all others."""
        alpha, margin = self.options.alpha, self.options.margin
        # transposed, because the sums run over the proxies: [..., C, B] → [..., B]
        attract = log_one_plus_column_sum((-alpha * (score - margin)).mT, pairs.pos.mT)
        repel = log_one_plus_column_sum((alpha * (score + margin)).mT, pairs.neg.mT)
        attract_count = (pairs.pos > 0).any(-1).sum(-1).clamp_min(1)
        repel_count = (pairs.neg > 0).any(-1).sum(-1).clamp_min(1)
        return (attract.sum(-1) / attract_count + repel.sum(-1) / repel_count).mean()


def log_one_plus_column_sum(exponent: Tensor, weights: Tensor) -> Tensor:
    """Return log(1 + Σ_B w e^x), [..., R], of exponents x[..., B, R] and weights w[..., B, R]."""
    total = log_sum(exponent, weights)
    # Above 20 F.softplus returns x itself, which is too small by about e^−x. In float64 that is
    # 2e-9, which shows where gradients nearly cancel.
    return torch.where(total > 20, total + torch.exp(-total.clamp_min(20)), F.softplus(total))


def log_sum(exponent: Tensor, weights: Tensor) -> Tensor:
    """Return log Σ_B w e^x, [..., R], of exponents x[..., B, R] and weights w[..., B, R].

    Without a weight above 0 the result is about LOG_OF_0 (−1e30), with gradient 0, so that the
    softplus of a proxy without a positive in the batch is 0 and not NaN.
    """
    is_weighted = weights > 0
    log_weights = torch.where(is_weighted, weights, 1).log()
    masked = torch.where(is_weighted, exponent + log_weights, LOG_OF_0)
    return torch.logsumexp(masked, dim=-2)
