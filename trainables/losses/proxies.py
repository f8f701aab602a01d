"""Learnable references, one per class, and their initial values in papers and public codes."""

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from trainables.losses.base import Loss, References

Init = Literal["kaiming", "uniform", "kaiming_uniform", "randn", "randn8", "normal"]


def draw_initial_proxies(rows: int, dim: int, init: Init) -> nn.Parameter:
    """Draw initial references, [rows, dim] = [R, D], from torch's global generator.

    Losses normalise these references, so that the initial length decides only how far an optimiser
    step turns a reference.

    Args:
        init: the distribution and the public code that uses it:
            kaiming: N(0, 2/R), Proxy-Anchor (fan-out).
            uniform: U(−1/√D, 1/√D), NormSoftmax.
            kaiming_uniform: U(−1/√R, 1/√R), SoftTriple, which stores its centres transposed.
            randn: N(0, 1).
            randn8: N(0, 1)/8, Proxy-NCA, Proxy-NCA++ and NIR.
            normal: N(0, 0.01²), ArcFace.
    """
    values = torch.empty(rows, dim)
    if init == "kaiming":
        nn.init.kaiming_normal_(values, mode="fan_out")
    elif init in ("uniform", "kaiming_uniform"):
        values = values.uniform_(-1, 1) / math.sqrt(dim if init == "uniform" else rows)
    else:
        values = values.normal_() * {"randn": 1.0, "randn8": 1 / 8, "normal": 0.01}[init]
    return nn.Parameter(values)


class ClassLoss(Loss):
    """Hold the same number of learnable references for each class, initialised by `config.init`."""

    VECTORS: ClassVar[str] = "proxies"  # the name of the references among the parameters
    labels: Tensor

    def __init__(self, config: Any, *, classes: int, dim: int, per_class: int = 1) -> None:
        """Draw `per_class` learnable vectors for each class, which are stored class by class."""
        super().__init__(config, classes=classes, dim=dim)
        self.per_class = per_class
        vectors = draw_initial_proxies(classes * per_class, dim, config.init)
        self.register_parameter(self.VECTORS, vectors)
        labels = torch.arange(classes).repeat_interleave(per_class)
        self.register_buffer("labels", labels, persistent=False)

    def references(self) -> References:
        return References(self.get_parameter(self.VECTORS), self.labels, self.per_class)
