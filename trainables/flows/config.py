"""The configuration of a flow: its layers and their initial values."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainables.config.ranges import log_range
from trainables.config.registry import ComponentConfig


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
