"""One coupling: a half of the dimensions, scaled and shifted by a subnet of the other half.

Shape legend: A active dimensions · P passive dimensions · K condition · `...` leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainables.flows.config import FlowConfig
from trainables.machine.kernels import Linear

# 2/π to the three digits that public code has, so that |s| stays below 0.9990 c.
ATAN_SHARE = 0.636


def soft_clamp(raw: Tensor, clamp: float | Tensor) -> Tensor:
    """c · 0.636 · atan(raw): within ±c, and steep as 0.636 c at 0."""
    return clamp * ATAN_SHARE * torch.atan(raw)


class Coupling(nn.Module):
    """y_a = x_a · e^s + t with (s, t) = subnet(x_p, condition), s softly clamped; nice: s = 0.

    The Jacobian of (x_p, x_a) ↦ (x_p, y_a) is triangular: 1 on the diagonal for the passive
    half, e^s for the active one.
    """

    def __init__(self, config: FlowConfig, *, active: int, passive: int, condition: int) -> None:
        super().__init__()
        self.affine = config.kind != "nice"
        self.conditional = condition > 0
        self.clamp: float | Tensor = config.clamp
        layers: list[nn.Module] = []
        width = passive + condition
        for _ in range(config.hidden):
            layers += [Linear(width, config.width), nn.ReLU()]
            width = config.width
        last = Linear(width, 2 * active if self.affine else active)
        with torch.no_grad():
            for start in (last.weight, last.bias):
                start.mul_(0 if config.identity else config.gain)
        self.subnet = nn.Sequential(*layers, last)

    def forward(
        self, active: Tensor, passive: Tensor, condition: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x_a[..., A], x_p[..., P] → y_a[..., A] and the log-scales s[..., A]."""
        if not self.affine:
            nothing = active.new_zeros(()).expand_as(active)
            return active + self._subnet(passive, condition), nothing
        s, t = self._scale_shift(passive, condition)
        return active * s.exp() + t, s

    def inverse(self, active: Tensor, passive: Tensor, condition: Tensor | None) -> Tensor:
        """y_a → x_a; the passive half is what it was."""
        if not self.affine:
            return active - self._subnet(passive, condition)
        s, t = self._scale_shift(passive, condition)
        return (active - t) * (-s).exp()

    def _scale_shift(self, passive: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor]:
        raw, t = self._subnet(passive, condition).chunk(2, dim=-1)
        return soft_clamp(raw, self.clamp), t

    def _subnet(self, passive: Tensor, condition: Tensor | None) -> Tensor:
        if self.conditional:
            assert condition is not None
            passive = torch.cat([passive, condition], dim=-1)
        raw: Tensor = self.subnet(passive)
        return raw
