"""DVML on small features, and its terms beside the oracle's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.oracles import dvml as oracle
from tests.trainables.methods.method_on import method_on
from trainables import streams
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs
from trainables.methods.base import Progress, Term
from trainables.methods.dvml import DVML, DVMLState

B, FEATURES, D, C, T, H = 6, 7, 4, 5, 3, 5
LABELS = [0, 0, 1, 3, 3, 1]
WIDE = 1.5  # of triplets: so few items lie within no smaller margin
FIRST, SECOND = Progress(fraction=0.0), Progress(fraction=0.9)


class MarginPairs(Loss):
    """A loss without references; its loops are `oracle.margin_pairs`."""

    geometry = Geometry("l2sq", normalize=False)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        pull = (pairs.pos * -score).sum((-2, -1)) / pairs.pos.sum()
        push = (pairs.neg * (9 + score).clamp_min(0)).sum((-2, -1)) / pairs.neg.sum()
        return (pull + push).mean()


def loss_of(name: str) -> Loss:
    with streams.seed_global_generator(0, "init", "loss"):
        if name == "pairs":
            return MarginPairs(ComponentConfig(), classes=C, dim=D)
        options = {"margin": WIDE} if name == "triplet_l2sq" else {}
        return LOSSES[name](LOSSES[name].Config(**options), classes=C, dim=D)


def built(method: str = "dvml", loss: str = "normsoftmax", **options: Any) -> Any:
    if method == "dvml":
        options = {"samples": T, "hidden": H, **options}
    base = loss_of(loss)
    return method_on(method, base, features=FEATURES, dim=D, classes=C, **options)


def inputs() -> Tensor:
    return torch.randn(B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x"))


def step(
    method: Any, progress: Progress = FIRST, x: Tensor | None = None
) -> tuple[DVMLState, dict[str, Term]]:
    labels = torch.tensor(LABELS)[:, None]
    x = inputs() if x is None else x
    state = method(x, labels, progress, streams.create_generator(0, "method"))
    return state, method.terms(state, labels, progress, streams.create_generator(0, "loss"))


class ByLoops:
    """The whole forward pass of `method` on `x`, from its weights and the step's own draws."""

    def __init__(self, method: DVML, x: Tensor) -> None:
        def rows(layer: Any) -> Tensor:
            return torch.stack([oracle.linear(row, layer.weight, layer.bias) for row in x])

        draw = streams.create_generator(0, "method")
        self.noise = torch.randn(T, B, D, generator=draw, dtype=torch.float64)
        self.invariant, self.mean = rows(method.head), rows(method.mean)
        self.log_variance = rows(method.log_variance)
        self.generated = oracle.samples(self.invariant, self.mean, self.log_variance, self.noise)
        self.layers = [
            (layer.weight, layer.bias) for layer in (method.decoder[0], method.decoder[2])
        ]
