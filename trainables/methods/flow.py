"""Normalising flows on embeddings: Real-NVP, NICE and GLOW couplings, conditional or not.

    with streams.use_substream("detreg.flow1"):
        flow = Flow(FlowConfig(kind="realnvp", depth=12), dim=512)
    output = flow(x)                 z[..., D], log_det[...], log_diagonal[..., D]
    x = flow.inverse(output.z)

A flow has couplings that transform both halves in turn, then a diagonal scaling. A coupling scales
and shifts a half of the dimensions by a subnet of the other half. No library is used (FrEIA,
nflows, normflows and zuko were examined in November 2026), because all of them add up a layer's
log-scales before they return, and DetReg needs them separately.

Shape legend: D dimensions · K condition · `...` leading dimensions · A active, P passive ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from trainables.config.ranges import log_range
from trainables.config.registry import ComponentConfig

# 2/π to the three digits that public code has, so that |s| stays below 0.9990 c.
ATAN_SHARE = 0.636


class FlowConfig(ComponentConfig):
    """A stack of couplings on D dimensions; the defaults are DetReg's recipe.

    kind: "realnvp", affine couplings of one half; "nice", additive couplings of one half, whose
        volume changes only in the diagonal scaling; "glow", blocks that transform both halves in
        turn, as in NIR's Eq. 7.
    depth: number of couplings (realnvp, nice) or of blocks of two couplings (glow); 0 is the
        identity, without parameters.
    width: units of each hidden layer of a subnet.
    hidden: number of hidden layers of a subnet.
    clamp: bound c of the log-scales, s ← c · 0.636 · atan(s), also of the diagonal scaling.
    permutation: whether each pair of couplings (block of glow) after the first works in a fixed
        random order of the dimensions; else the two halves alternate in the given order.
    scaling: whether a learnt diagonal scaling follows; None: only for nice, which needs it.
    condition: which couplings (blocks of glow) get the condition: all ("dense"), the first
        ("start"), number depth // 2 from 0 ("mid") or the last ("end"). Unused without a condition.
    gain: factor of the initial values of the subnets' last layers. 0.1 starts near the identity;
        the papers do not state it. 1 is torch's start of a linear layer, as in public code: twelve
        blocks of glow on 512 standard normal dimensions then produce values up to 1e4, and the
        inverse is lost in float32.
    identity: whether those layers start at 0, so that the flow starts as the exact identity.
    Sources: kind: DetReg, section 5.2; clamp: NIR's public code; condition: NIR; hidden,
        permutation, scaling, gain, identity: this project.

    References:
        realnvp: Dinh et al., "Density estimation using Real NVP", ICLR 2017.
        https://arxiv.org/abs/1605.08803
        nice: Dinh et al., "NICE: Non-linear independent components estimation", ICLR 2015
        workshop. https://arxiv.org/abs/1410.8516
        glow: Kingma & Dhariwal, "Glow: Generative flow with invertible 1×1 convolutions",
        NeurIPS 2018. https://arxiv.org/abs/1807.03039
    """

    kind: Literal["realnvp", "nice", "glow"] = "realnvp"
    depth: int = Field(12, ge=0, le=64, **log_range(2, 12, "DetReg 12, NIR 8", whole=True))
    width: int = Field(512, ge=1, le=8192, **log_range(64, 512, "NIR 128, DetReg 512", whole=True))
    hidden: int = Field(1, ge=1, le=16)
    clamp: float = Field(2.0, gt=0, le=20)
    permutation: bool = True
    scaling: bool | None = None
    condition: Literal["dense", "start", "mid", "end"] = "dense"
    gain: float = Field(0.1, gt=0, le=1)
    identity: bool = False

    @property
    def scales(self) -> bool:
        """Return whether a diagonal scaling follows the couplings."""
        return self.depth > 0 and (self.kind == "nice" if self.scaling is None else self.scaling)

    @property
    def couplings(self) -> int:
        return 2 * self.depth if self.kind == "glow" else self.depth

    def is_conditioned(self, coupling: int) -> bool:
        """Return whether this coupling, counted from 0, gets the condition."""
        block = coupling // 2 if self.kind == "glow" else coupling
        positions = {"start": 0, "mid": self.depth // 2, "end": self.depth - 1}
        return self.condition == "dense" or block == positions[self.condition]


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
        """Build the subnet that maps the passive half to scales and shifts of the active half."""
        super().__init__()
        self.affine = config.kind != "nice"
        self.conditional = condition > 0
        self.clamp: float | Tensor = config.clamp
        layers: list[nn.Module] = []
        width = passive + condition
        for _ in range(config.hidden):
            layers += [nn.Linear(width, config.width), nn.ReLU()]
            width = config.width
        last = nn.Linear(width, 2 * active if self.affine else active)
        with torch.no_grad():
            for values in (last.weight, last.bias):
                values.mul_(0 if config.identity else config.gain)
        self.subnet = nn.Sequential(*layers, last)

    def forward(
        self, active: Tensor, passive: Tensor, condition: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return y_a = x_a e^s + t and the log-scales s, [..., A] each; s and t depend on x_p."""
        s, t = self._compute_scale_and_shift(passive, condition)
        return active * s.exp() + t, s

    def inverse(self, active: Tensor, passive: Tensor, condition: Tensor | None) -> Tensor:
        """Return x_a of y_a; the passive half is unchanged by `forward`."""
        s, t = self._compute_scale_and_shift(passive, condition)
        return (active - t) * (-s).exp()

    def _compute_scale_and_shift(
        self, passive: Tensor, condition: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return log-scales s (0 for "nice") and shifts t of the active half, [..., A] each."""
        if self.conditional:
            assert condition is not None
            passive = torch.cat([passive, condition], dim=-1)
        output: Tensor = self.subnet(passive)
        if not self.affine:
            return torch.zeros_like(output), output
        scale, shift = output.chunk(2, dim=-1)
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
    """

    orders: Tensor
    places: Tensor  # the inverse of each order

    def __init__(self, config: FlowConfig, *, dim: int, condition_dim: int = 0) -> None:
        """Build the couplings; each pair of them works in its own order of the dimensions."""
        super().__init__()
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
        orders = [torch.arange(dim)] * min(pairs, 1)  # the given order, if there is a pair
        for _ in range(1, pairs):
            orders.append(torch.randperm(dim) if config.permutation else orders[-1])
        # orders[p][i] is the dimension of x at position i of pair p; places[p] inverts orders[p].
        stacked = torch.stack(orders) if orders else torch.empty(0, dim, dtype=torch.int64)
        self.register_buffer("orders", stacked)
        self.register_buffer("places", stacked.argsort(-1))
        self.scale = nn.Parameter(torch.zeros(dim)) if config.scales else None

    def forward(self, x: Tensor, condition: Tensor | None = None) -> FlowOutput:
        """Transform x[..., D] into z under condition[..., K], and add up the log-determinants."""
        with torch.autocast(x.device.type, enabled=False):
            x, condition = self._convert_input(x, condition)
            scales: list[Tensor] = []
            log_diagonal = torch.zeros_like(x)
            # in each pair coupling 0 transforms half 1 by half 0, then coupling 1 half 0 by half 1
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
        """Return the x[..., D] that `forward` maps to z[..., D] under the same condition."""
        with torch.autocast(z.device.type, enabled=False):
            z, condition = self._convert_input(z, condition)
            if self.scale is not None:
                z = z * (-soft_clamp(self.scale, self.config.clamp)).exp()
            for p in reversed(range(len(self.orders))):
                halves = self._split_halves(z.index_select(-1, self.orders[p]))
                for passive, coupling in reversed(list(enumerate(self._get_pair(p)))):
                    active = 1 - passive  # the half that the coupling transforms
                    halves[active] = coupling.inverse(halves[active], halves[passive], condition)
                z = self._restore_input_order(torch.cat(halves, dim=-1), p)
            return z

    def walk(self, x: Tensor) -> Iterator[tuple[Coupling, Tensor, Tensor]]:
        """Run the flow on x; yield each coupling with its active and passive input, x_a and x_p."""
        for p in range(len(self.orders)):
            halves = self._enter_pair(x, p)
            for passive, coupling in enumerate(self._get_pair(p)):
                active = 1 - passive  # the half that the coupling transforms
                yield coupling, halves[active], halves[passive]
                halves[active], _ = coupling(halves[active], halves[passive], None)
            x = torch.cat(halves, dim=-1)

    def _get_pair(self, pair: int) -> list[Coupling]:
        """Return a pair's couplings, of which the first transforms the second half."""
        return cast("list[Coupling]", list(self.couplings)[2 * pair : 2 * pair + 2])

    def _enter_pair(self, x: Tensor, pair: int) -> list[Tensor]:
        """Return the halves of x in the order of dimensions in which this pair of couplings works.

        x comes in the order of the previous pair; one gather composes both reorderings.
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

    def _convert_input(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return x in float32 or float64, and the condition with the type and leading axes of x."""
        if x.dtype in (torch.bfloat16, torch.float16):
            x = x.float()
        if condition is not None:
            condition = condition.to(x.dtype).expand(*x.shape[:-1], self.condition_dim)
        return x, condition
