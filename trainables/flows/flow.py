"""A flow: couplings that transform both halves in turn, then a diagonal scaling.

A coupling scales and shifts a half of the dimensions by a subnet of the other half.

Shape legend: D dimensions · K condition · `...` leading dimensions · A active, P passive ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from trainables.flows.config import FlowConfig
from trainables.machine.kernels import Linear

# 2/π to the three digits that public code has, so that |s| stays below 0.9990 c.
ATAN_SHARE = 0.636


def soft_clamp(raw: Tensor, clamp: float | Tensor) -> Tensor:
    """Return c · 0.636 · atan(raw), which is within ±c and has slope 0.636 c at 0."""
    return clamp * ATAN_SHARE * torch.atan(raw)


class Coupling(nn.Module):
    """Scale and shift the active half of the dimensions by a subnet of the passive half:

        y_a = x_a · e^s + t,  (s, t) = subnet(x_p, condition),  s softly clamped; nice: s = 0

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
        """Transform x_a[..., A] by x_p[..., P]; return y_a[..., A] and log-scales s[..., A]."""
        s, t = self._scale_shift(passive, condition)
        if s is None:
            return active + t, active.new_zeros(()).expand_as(active)
        return active * s.exp() + t, s

    def inverse(self, active: Tensor, passive: Tensor, condition: Tensor | None) -> Tensor:
        """Return x_a of y_a; the passive half is unchanged by `forward`."""
        s, t = self._scale_shift(passive, condition)
        return active - t if s is None else (active - t) * (-s).exp()

    def _scale_shift(
        self, passive: Tensor, condition: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        if self.conditional:
            assert condition is not None
            passive = torch.cat([passive, condition], dim=-1)
        raw: Tensor = self.subnet(passive)
        if not self.affine:
            return None, raw
        scale, shift = raw.chunk(2, dim=-1)
        return soft_clamp(scale, self.clamp), shift


@dataclass(frozen=True)
class FlowOutput:
    """Hold the result of a flow on x[..., D].

    Attributes:
        z: [..., D].
        log_det: [...], log |det ∂z/∂x|, exact, because each layer is triangular.
        log_diagonal: [..., D], the logarithms of the layers' diagonal Jacobian entries, summed
            over layers for each dimension of x (DetReg's Lemma 1). Its sum is log_det. It is the
            diagonal of ∂z/∂x only for a flow of one layer.
        log_scales: the same logarithms by layer, without those that are always 0: [..., A] of
            each coupling, then [D] of the scaling, each in the order of its layer.
    """

    z: Tensor
    log_det: Tensor
    log_diagonal: Tensor
    log_scales: tuple[Tensor, ...]


class Flow(nn.Module):
    """Map ℝᴰ → ℝᴰ invertibly by couplings and a diagonal scaling.

    Couplings 2p and 2p + 1 transform the second and the first half of one order of the
    dimensions, so that every dimension is transformed equally often; a new order is drawn for each
    p > 0. A block of glow (NIR, Eq. 7) is such a pair, and two layers of Lemma 1. z is in the order
    of x, so that the identity flow returns x and not a permutation of it. The scaling is
    z_i · e^{s_i}, with s softly clamped and initially 0.

    It computes in float32, or in float64 if flow and x are float64; autocast is off inside. Initial
    values come from torch's global generator: build it within `streams.use_substream`.

    Args:
        config: layers and initial values.
        dim: D, at least 2.
        condition_dim: K; 0 for a flow without condition.

    Example:
        >>> flow = Flow(FlowConfig(kind="glow", depth=2, width=8), dim=4)
        >>> x = torch.randn(3, 4)
        >>> output = flow(x)
        >>> output.z.shape, output.log_det.shape
        (torch.Size([3, 4]), torch.Size([3]))
        >>> torch.allclose(flow.inverse(output.z), x, atol=1e-4)
        True

    References:
        See `FlowConfig`.
    """

    orders: Tensor
    places: Tensor

    def __init__(self, config: FlowConfig, *, dim: int, condition_dim: int = 0) -> None:
        super().__init__()
        if dim < 2:
            raise ValueError(f"dim must be at least 2, not {dim}: a coupling needs two halves")
        self.config, self.dim, self.condition_dim = config, dim, condition_dim
        self._half = dim // 2
        sizes = [dim - self._half, self._half]  # what even and odd couplings transform
        self.couplings = nn.ModuleList(
            Coupling(
                config,
                active=sizes[k % 2],
                passive=sizes[1 - k % 2],
                condition=condition_dim if config.is_conditioned(k) else 0,
            )
            for k in range(config.couplings)
        )
        pairs = (config.couplings + 1) // 2
        orders = [torch.arange(dim)] * min(pairs, 1)
        for _ in range(1, pairs):
            orders.append(torch.randperm(dim) if config.permutation else orders[-1])
        # orders[p][i] is the dimension of x at position i of pair p; places[p] is its inverse.
        stacked = torch.stack(orders) if orders else torch.empty(0, dim, dtype=torch.int64)
        self.register_buffer("orders", stacked)
        self.register_buffer("places", stacked.argsort(-1))
        self.scale = nn.Parameter(torch.zeros(dim)) if config.scales else None

    def forward(self, x: Tensor, condition: Tensor | None = None) -> FlowOutput:
        """Transform x into z.

        Args:
            x: [..., D].
            condition: [..., K], with leading dimensions that broadcast to those of x.
        """
        with torch.autocast(x.device.type, enabled=False):
            x, condition = self._check_input(x, condition)
            scales: list[Tensor] = []
            log_diagonal = torch.zeros_like(x)
            for p in range(len(self.orders)):
                halves = self._enter_pair(x, p)
                log_scales = [torch.zeros_like(half) for half in halves]
                for passive, coupling in enumerate(self._get_pair(p)):
                    active = 1 - passive
                    halves[active], log_scales[active] = coupling(
                        halves[active], halves[passive], condition
                    )
                    scales.append(log_scales[active])
                x = torch.cat(halves, dim=-1)
                pair_diagonal = torch.cat(log_scales, dim=-1)
                log_diagonal = log_diagonal + self._restore_input_order(pair_diagonal, p)
            x = self._restore_input_order(x, len(self.orders) - 1)
            if self.scale is not None:
                log_scale = soft_clamp(self.scale, self.config.clamp)
                x, log_diagonal = x * log_scale.exp(), log_diagonal + log_scale
                scales.append(log_scale)
            return FlowOutput(x, log_diagonal.sum(-1), log_diagonal, tuple(scales))

    def inverse(self, z: Tensor, condition: Tensor | None = None) -> Tensor:
        """Return x[..., D] of z[..., D], given the condition that `forward` got."""
        with torch.autocast(z.device.type, enabled=False):
            z, condition = self._check_input(z, condition)
            if self.scale is not None:
                z = z * (-soft_clamp(self.scale, self.config.clamp)).exp()
            for p in reversed(range(len(self.orders))):
                halves = self._split_halves(z.index_select(-1, self.orders[p]))
                for passive, coupling in reversed(list(enumerate(self._get_pair(p)))):
                    active = 1 - passive
                    halves[active] = coupling.inverse(halves[active], halves[passive], condition)
                z = self._restore_input_order(torch.cat(halves, dim=-1), p)
            return z

    def walk(self, x: Tensor) -> Iterator[tuple[Coupling, Tensor, Tensor]]:
        """Run the flow on x and yield each coupling with its inputs x_a[..., A] and x_p[..., P]."""
        for p in range(len(self.orders)):
            halves = self._enter_pair(x, p)
            for passive, coupling in enumerate(self._get_pair(p)):
                active = 1 - passive
                yield coupling, halves[active], halves[passive]
                halves[active], _ = coupling(halves[active], halves[passive], None)
            x = torch.cat(halves, dim=-1)

    def _get_pair(self, pair: int) -> list[Coupling]:
        """Return a pair's couplings, of which the first transforms the second half."""
        return cast("list[Coupling]", list(self.couplings)[2 * pair : 2 * pair + 2])

    def _enter_pair(self, x: Tensor, pair: int) -> list[Tensor]:
        """Reorder x from the previous pair's order to this pair's, and return its halves.

        The two reorderings are composed into one gather.
        """
        if pair > 0 and self.config.permutation:
            x = x.index_select(-1, self.places[pair - 1][self.orders[pair]])
        return self._split_halves(x)

    def _restore_input_order(self, x: Tensor, pair: int) -> Tensor:
        """Reorder x from a pair's order to that of the flow's input."""
        if pair <= 0 or not self.config.permutation:
            return x
        return x.index_select(-1, self.places[pair])

    def _split_halves(self, x: Tensor) -> list[Tensor]:
        return [x[..., : self._half], x[..., self._half :]]

    def _check_input(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Check the sizes, and return x in float32 or float64 and the expanded condition."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"the last axis of x must be {self.dim} long; its shape is {tuple(x.shape)}"
            )
        if (0 if condition is None else condition.shape[-1]) != self.condition_dim:
            shape = "none" if condition is None else str(tuple(condition.shape))
            raise ValueError(
                f"the condition must have {self.condition_dim} dimensions; its shape is {shape}"
            )
        if x.dtype in (torch.bfloat16, torch.float16):
            x = x.float()
        return x, None if condition is None else condition.to(x.dtype).expand(
            *x.shape[:-1], self.condition_dim
        )
