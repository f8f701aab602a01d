"""Small batches and losses for the tests of DDML and of what builds on it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.trainables.methods.method_on import method_on
from trainables import streams
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs, References
from trainables.methods.base import Progress, Term

B, FEATURES, D, C = 6, 7, 4, 5
LABELS = [0, 0, 1, 3, 3, 2]


class PairLoss(Loss):
    """A loss without references, as HypViT's is."""

    geometry = Geometry("cosine")

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (score * (pairs.neg - pairs.pos)).mean()


class TwoCentres(Loss):
    """Two references per class."""

    def __init__(self, config: ComponentConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.centres = torch.nn.Parameter(torch.randn(2 * classes, dim))

    def references(self) -> References:
        return References(self.centres, torch.arange(self.classes).repeat_interleave(2), 2)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (score * (pairs.neg - pairs.pos)).mean()


def loss_of(name: str) -> Loss:
    with streams.seed_global_generator(0, "init", "loss"):
        if name == "pair":
            return PairLoss(ComponentConfig(), classes=C, dim=D)
        if name == "centres":
            return TwoCentres(ComponentConfig(), classes=C, dim=D)
        return LOSSES[name](LOSSES[name].Config(), classes=C, dim=D)


def built(method: str = "ddml", loss: str = "normsoftmax", **options: Any) -> Any:
    base = loss_of(loss)
    return method_on(method, base, features=FEATURES, dim=D, classes=C, **options)


def step(method: Any) -> tuple[Any, dict[str, Term]]:
    x = torch.randn(B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x"))
    labels = torch.tensor(LABELS)[:, None]
    state = method(3 * x, labels, Progress(), streams.create_generator(0, "method"))
    return state, method.terms(state, labels, Progress(), streams.create_generator(0, "loss"))
