"""What the tests of IDML share: its parts on a loss, a batch with label sets, a comparison."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.trainables.methods import method_on
from trainables import streams
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs
from trainables.methods.base import Progress

B, FEATURES, D, U, C = 6, 7, 4, 3, 5
SETS = [{0}, {0}, {1, 3}, {3}, {3}, {2, 4}]
TAU, GAMMA = 1.7, 0.3
compare = partial(method_on.compare, unreached=())  # every parameter gets a gradient
GEOMETRIES = [
    Geometry("cosine"),
    Geometry("dot", normalize=True),
    *(Geometry(kind, normalize=n) for kind in ("l2", "l2sq") for n in (True, False)),
]


class PairLoss(Loss):
    """Without references; its geometry is set by the test."""

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (score * (pairs.neg - pairs.pos)).sum((-2, -1)).mean()


def slots(sets: list[set[int]]) -> Tensor:
    return torch.tensor([sorted(s) + [-1] * (2 - len(s)) for s in sets])


def attached(method: str, loss: Loss, **options: Any) -> Any:
    if method == "idml":
        sizes = {"uncertainty_dim": U, "tau": TAU, "gamma": GAMMA, "uncertainty_gain": 1.0}
        options = {**sizes, **options}
    return method_on.method_on(method, loss, features=FEATURES, dim=D, classes=C, **options)


def base(name: str, **options: Any) -> Loss:
    with streams.seed_global_generator(0, "init", "loss"):
        return LOSSES[name](LOSSES[name].Config(**options), classes=C, dim=D)


def pair_loss(geometry: Geometry) -> Loss:
    loss = PairLoss(ComponentConfig(), classes=C, dim=D)
    loss.geometry = geometry  # type: ignore[misc]
    return loss


def x(rows: int = B) -> Tensor:
    return torch.randn(
        rows, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )


def metric(method: Any, features: Tensor, labels: Tensor) -> Tensor:
    state = method(features, labels, Progress(), streams.create_generator(0, "method"))
    found: Tensor = method.terms(state, labels, Progress(), streams.create_generator(0, "loss"))[
        "metric"
    ].value
    return found
