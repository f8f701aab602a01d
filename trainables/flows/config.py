"""What decides a flow's shape and its start."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainables.config.registry import ComponentConfig


class FlowConfig(ComponentConfig):
    """A stack of couplings on D dimensions; the defaults are DetReg's recipe.

    kind: "realnvp" (Dinh et al., "Density estimation using Real NVP", ICLR 2017), one-sided
        affine couplings; "nice" (Dinh et al., "NICE", ICLR 2015 workshop), one-sided and
        additive, so that its volume changes in the diagonal scaling alone; "glow" (Kingma &
        Dhariwal, NeurIPS 2018, as in NIR's Eq. 7), blocks that transform both halves in turn.
    depth: couplings of realnvp and nice, blocks (two couplings each) of glow. 0 is the identity
        without parameters, which no training moves.
    width, hidden: units of each hidden layer of a subnet, and how many of those there are.
    clamp: c of the soft bound of log-scales, s ← c · 0.636 · atan(s), which lies within ±c; it
        bounds the diagonal scaling as well.
    permutation: a fixed random order of the dimensions for each pair of couplings (each block
        of glow) but the first; without it the two halves take turns in the given order.
    scaling: a learnt diagonal scaling at the end; None: with nice alone, which needs it.
    condition: which couplings (blocks of glow) see the condition: all ("dense"), or the first,
        the middle (number depth // 2, from 0) or the last. Unused where none is given.
    gain: factor of the initial values of the subnets' last layers. 1 is torch's own start of a
        linear layer, and what public code has; from there twelve blocks of glow on 512 standard
        normal dimensions blow values up to 1e4, for larger values make larger scales, and the
        inverse is lost in float32. 0.1 starts near the identity. The papers do not say.
    identity: those layers start at 0, so that the flow starts as the identity, exactly.
    """

    kind: Literal["realnvp", "nice", "glow"] = "realnvp"
    depth: int = Field(12, ge=0, le=64)
    width: int = Field(512, ge=1, le=8192)
    hidden: int = Field(1, ge=1, le=16)
    clamp: float = Field(2.0, gt=0, le=20)
    permutation: bool = True
    scaling: bool | None = None
    condition: Literal["dense", "start", "mid", "end"] = "dense"
    gain: float = Field(0.1, gt=0, le=1)
    identity: bool = False

    @property
    def scales(self) -> bool:
        """Whether there is a diagonal scaling."""
        return self.depth > 0 and (self.kind == "nice" if self.scaling is None else self.scaling)

    @property
    def couplings(self) -> int:
        return 2 * self.depth if self.kind == "glow" else self.depth

    def is_conditioned(self, coupling: int) -> bool:
        """Return whether this coupling, counted from 0, sees the condition."""
        block = coupling // 2 if self.kind == "glow" else coupling
        place = {"start": 0, "mid": self.depth // 2, "end": self.depth - 1}
        return self.condition == "dense" or block == place[self.condition]
