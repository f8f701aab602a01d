"""DetReg on small features, and its terms beside the oracle's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.oracles import detreg as oracle
from tests.trainables.methods.method_on import method_on
from trainables import streams
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs
from trainables.methods.base import Progress, Term
from trainables.methods.detreg import DetRegState

B, FEATURES, D, C = 7, 6, 5, 5

LABELS = [0, 0, 1, 3, 3, 3, 2]  # classes 1 and 2 stand alone: no neighbour, no augmented point

FLOW = {"depth": 3, "width": 4, "gain": 1.0, "scaling": True}


class Pulls(Loss):
    """No references, dot products, nothing normalised, and a parameter and a penalty of its own."""

    geometry = Geometry("dot", normalize=False)

    def __init__(self, config: ComponentConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.slope = torch.nn.Parameter(torch.ones(()))

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (self.slope * score * (pairs.neg - pairs.pos)).mean()

    def penalty(self) -> dict[str, tuple[Tensor, float | Tensor]]:
        return {"slope": (self.slope.square(), 0.5)}


def built(loss: str = "normsoftmax", method: str = "detreg", **options: Any) -> Any:
    with streams.seed_global_generator(0, "init", "loss"):
        if loss == "pulls":
            base: Loss = Pulls(ComponentConfig(), classes=C, dim=D)
        else:
            base = LOSSES[loss](LOSSES[loss].Config(), classes=C, dim=D)
    if method == "detreg":
        options = {"flow": FLOW, "activation": "tanh"} | options
    made = method_on(method, base, features=FEATURES, dim=D, classes=C, **options)
    for flow in (getattr(made, "flow1", None), getattr(made, "flow2", None)):
        if flow is not None and flow.scale is not None:
            with torch.no_grad():
                flow.scale.copy_(torch.linspace(-1, 1, D))
    return made


def inputs(n: int = B) -> Tensor:
    return 2 * torch.randn(
        n, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )


def step(method: Any, labels: list[int] = LABELS) -> tuple[DetRegState, dict[str, Term]]:
    slots = torch.tensor(labels)[:, None]
    state = method(inputs(len(labels)), slots, Progress(), streams.create_generator(0, "method"))
    return state, method.terms(state, slots, Progress(), streams.create_generator(0, "loss"))


def flow_input(method: Any) -> Tensor:
    z = inputs() @ method.head.weight.T + method.head.bias
    z = torch.stack([oracle.flow_input(row, method.options.input or "unit") for row in z])
    return {"tanh": torch.tanh, "relu": lambda v: torch.clamp(v, min=0), "none": lambda v: v}[
        method.options.activation
    ](z)


def expected_r(method: Any, flow: Any, **augmentation: Any) -> Tensor:
    z = flow_input(method)
    points = [*z, *oracle.augmented(z, LABELS, method.options.epsilon, **augmentation)]
    options = method.options
    return oracle.r_of_set(oracle.layers_of(flow), points, options.spectrum, options.across)
