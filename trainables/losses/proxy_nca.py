"""Proxy-NCA and Proxy-NCA++: each item is drawn to its class's proxy and away from all others."""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.proxies import ClassLoss, Init
from trainables.losses.proxy_anchor import log_sum


@LOSSES.register("proxy_nca")
class ProxyNCA(ClassLoss):
    """Draw each item to the proxy of its class and away from all other proxies:

        L = −1/B Σ_i log( Σ_{p∈P_i} e^{−σ d(x_i, p)} / Σ_{p∈N_i} e^{−σ d(x_i, p)} )

    d(x, p) = ‖x − p‖² of L2-normalised vectors, P_i is the proxy of the item's class, N_i are all
    other proxies; the loss may be negative, because P_i is not among them. With `denominator`
    "all" the lower sum is over every proxy, a softmax, as in most public codes
    (pytorch-metric-learning's with softmax_scale = σ).

    With label sets P_i is the set's proxies, and their exponentials are added inside the
    logarithm, as in IDML's Eq. 14. Pair weights in (0, 1) multiply the exponentials of P_i and
    N_i. A query without a positive counts as 0; one without a negative is only drawn to its
    proxies.

    Example:
        >>> loss = ProxyNCA(ProxyNCA.Config(), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        -0.7

    References:
        Movshovitz-Attias et al., "No fuss distance metric learning using proxies", ICCV 2017,
        Eq. 4 and Algorithm 1. https://arxiv.org/abs/1703.07464
    """

    REVISION = 1
    geometry = Geometry("l2sq")

    class Config(NamedConfig):
        """scale: σ; the paper has none, so 1.
        init: initial proxies, see `draw_initial_proxies`; the default is that of public codes.

        denominator: whether the lower sum includes the positive proxy ("all") or not
            ("negatives").
        Sources: denominator: the paper.
        """

        name: Literal["proxy_nca"] = "proxy_nca"
        scale: float = Field(1.0, gt=0, le=1024, **log_range(1, 32, "1 in the paper, 9 in ++"))
        denominator: Literal["negatives", "all"] = "negatives"
        init: Init = "randn8"

    options: Config

    @property
    def logit_scale(self) -> float:
        """Return 2σ, because ‖x − p‖² = 2 − 2 cos."""
        return 2 * self.options.scale

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        """Return the Proxy-NCA loss of score[..., B, C] = −‖x − p‖², averaged over all items."""
        exponent = self.options.scale * score
        repel = pairs.neg
        if self.options.denominator == "all":  # the sum includes the positive proxy
            repel = torch.ones_like(repel)
        return nca_loss(exponent, pairs.pos, repel)


@LOSSES.register("proxy_nca_pp")
class ProxyNCAPP(ClassLoss):
    """Maximise the temperature-scaled probability of assigning an item to its proxy:

        L = −1/B Σ_i log( Σ_{p∈P_i} e^{−d(x_i, p)/T} / Σ_p e^{−d(x_i, p)/T} )

    d(x, p) = ‖x − p‖² of L2-normalised vectors, P_i is the proxy of the item's class. For one
    label per item it equals NormSoftmax at τ = T/2, and Proxy-NCA with denominator "all" at
    σ = 1/T. Label sets and pair weights are treated as in `ProxyNCA`; a query without a positive
    counts as 0.

    Deviations: the paper's max pooling, layer normalisation, class-balanced sampling and faster
    proxies are left out, because they are not part of the loss.

    Example:
        >>> loss = ProxyNCAPP(ProxyNCAPP.Config(temperature=0.5), classes=2, dim=2)
        >>> pairs = make_pairs(torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> round(loss(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), pairs).item(), 3)
        0.224

    References:
        Teh et al., "ProxyNCA++: Revisiting and revitalizing proxy neighborhood component
        analysis", ECCV 2020, proxy assignment probability with temperature scaling.
        https://arxiv.org/abs/2004.01113
    """

    REVISION = 1
    geometry = Geometry("l2sq")

    class Config(NamedConfig):
        """temperature: T; 1/9 is the paper's value.
        init: initial proxies, see `draw_initial_proxies`; the default is the public code's."""

        name: Literal["proxy_nca_pp"] = "proxy_nca_pp"
        temperature: float = Field(1 / 9, gt=0, le=10, **log_range(0.02, 0.5, "1/9 in the paper"))
        init: Init = "randn8"

    options: Config

    @property
    def logit_scale(self) -> float:
        """Return 2/T, because ‖x − p‖² = 2 − 2 cos."""
        return 2 / self.options.temperature

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Generator | None = None) -> Tensor:
        return nca_loss(score / self.options.temperature, pairs.pos, torch.ones_like(pairs.pos))


def nca_loss(exponent: Tensor, attract: Tensor, repel: Tensor) -> Tensor:
    """Return the mean over queries of −log(Σ_R a e^x / Σ_R r e^x), with x, a, r [..., B, R].

    A query without an attracting reference (a > 0) adds 0, and an empty sum Σ_R r e^x counts as 1.
    """
    near, far = log_sum(exponent.mT, attract.mT), log_sum(exponent.mT, repel.mT)
    zero, is_attracted = torch.zeros_like(near), (attract > 0).any(-1)
    near_or_0 = torch.where(is_attracted, near, zero)
    far_or_0 = torch.where((repel > 0).any(-1) & is_attracted, far, zero)
    return (far_or_0 - near_or_0).mean()
