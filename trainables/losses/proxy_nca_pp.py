"""Proxy-NCA++: the probability of the own proxy, at a low temperature."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from trainables.config.ranges import log_range
from trainables.config.registry import NamedConfig
from trainables.losses.base import LOSSES, Geometry, Pairs
from trainables.losses.proxies import ClassLoss, Init
from trainables.losses.proxy_nca import nca_loss


@LOSSES.register("proxy_nca_pp")
class ProxyNCAPP(ClassLoss):
    """Maximise the temperature-scaled probability of assigning an item to its proxy:

        L = −1/B Σ_i log( Σ_{p∈P_i} e^{−d(x_i, p)/T} / Σ_p e^{−d(x_i, p)/T} )

    d(x, p) = ‖x − p‖² of L2-normalised vectors, P_i is the proxy of the item's class. For one
    label per item it equals NormSoftmax at τ = T/2, and Proxy-NCA with denominator "all" at
    σ = 1/T. Label sets and pair weights are treated as in `ProxyNCA`; a query without a positive
    counts as 0.

    Left out, because they are not part of the loss: the paper's max pooling, layer normalisation,
    class-balanced sampling and faster proxies.

    Shape:
        score: [..., B, C], −d; the loss is the mean over B and leading dimensions.

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
