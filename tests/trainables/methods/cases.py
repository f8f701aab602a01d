"""What tests of methods share: small batches, losses, methods on them, a comparison with loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainables import streams
from trainables.config.network import EmbeddingConfig
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs, References
from trainables.methods.base import METHODS, Progress, Term

B, FEATURES, D, C = 6, 7, 4, 5
LABELS = [0, 0, 1, 3, 3, 1]
SETS = [{0}, {0}, {1, 3}, {3}, {3}, {2, 4}]
U, TAU, GAMMA = 3, 1.7, 0.3  # of IDML
SAMPLES = 3  # of an image, in DVML and PEL
WIDE = 1.5  # of triplets: so few items lie within no smaller margin
SMALL: dict[str, dict[str, Any]] = {
    "dvml": {"samples": SAMPLES, "hidden": 5},
    "idml": {"uncertainty_dim": U, "tau": TAU, "gamma": GAMMA, "uncertainty_gain": 1.0},
    "nir": {"flow": {"depth": 2, "width": 5, "gain": 1.0}},
    "pel": {"samples": SAMPLES},
}


class PairLoss(Loss):
    """A loss without references, as HypViT's is; a test may set its geometry."""

    geometry = Geometry("cosine")

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (score.square() * (pairs.neg - pairs.pos)).sum((-2, -1)).mean()


class MarginPairs(Loss):
    """A loss without references; its loops are `oracles.dvml.margin_pairs`."""

    geometry = Geometry("l2sq", normalize=False)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        pull = (pairs.pos * -score).sum((-2, -1)) / pairs.pos.sum()
        push = (pairs.neg * (9 + score).clamp_min(0)).sum((-2, -1)) / pairs.neg.sum()
        return (pull + push).mean()


class TwoCentres(Loss):
    """Two references of each class."""

    def __init__(self, config: ComponentConfig, *, classes: int, dim: int) -> None:
        super().__init__(config, classes=classes, dim=dim)
        self.centres = torch.nn.Parameter(torch.randn(2 * classes, dim))

    def references(self) -> References:
        return References(self.centres, torch.arange(self.classes).repeat_interleave(2), 2)

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (score * (pairs.neg - pairs.pos)).mean()


GEOMETRIES = [
    Geometry("cosine"),
    Geometry("dot", normalize=True),
    *(Geometry(kind, normalize=n) for kind in ("l2", "l2sq") for n in (True, False)),
]
OWN = {"pair": PairLoss, "pairs": MarginPairs, "centres": TwoCentres}


def base(name: str, **options: Any) -> Any:
    with streams.seed_global_generator(0, "init", "loss"):
        if name in OWN:
            return OWN[name](ComponentConfig(), classes=C, dim=D)
        if name == "triplet_l2sq":
            options = {"margin": WIDE, **options}
        return LOSSES[name](LOSSES[name].Config(**options), classes=C, dim=D)


def pair_loss(geometry: Geometry) -> Loss:
    loss: Loss = base("pair")
    loss.geometry = geometry  # type: ignore[misc]
    return loss


def build_on(
    method: str, loss: Loss, *, features: int = FEATURES, dim: int = D, **options: Any
) -> Any:
    """Return the method on the loss, in float64."""
    with streams.seed_global_generator(0, "init", "method"):
        return METHODS[method](
            METHODS[method].Config(**{**SMALL.get(method, {}), **options}),
            features=features,
            embedding=EmbeddingConfig(dim=dim),
            loss=loss,
            classes=C,
        ).double()


def built(method: str, loss: str = "normsoftmax", **options: Any) -> Any:
    return build_on(method, base(loss), **options)


def slots(sets: list[set[int]]) -> Tensor:
    return torch.tensor([sorted(s) + [-1] * (2 - len(s)) for s in sets])


def x(rows: int = B, scale: float = 1.0) -> Tensor:
    draws = streams.create_generator(0, "x")
    return scale * torch.randn(rows, FEATURES, dtype=torch.float64, generator=draws)


def noise(*shape: int) -> Tensor:
    """Return what a method draws first in a step."""
    draws = streams.create_generator(0, "method")
    return torch.randn(shape, dtype=torch.float64, generator=draws)


def step(
    method: Any,
    progress: Progress | None = None,
    features: Tensor | None = None,
    labels: Tensor | None = None,
) -> tuple[Any, dict[str, Term]]:
    """Return state and terms of one step; by default of LABELS and three times the features."""
    features = x(scale=3) if features is None else features
    labels = torch.tensor(LABELS)[:, None] if labels is None else labels
    progress = progress or Progress()
    state = method(features, labels, progress, streams.create_generator(0, "method"))
    return state, method.terms(state, labels, progress, streams.create_generator(0, "loss"))


def metric(method: Any, features: Tensor, labels: Tensor) -> Tensor:
    return step(method, None, features, labels)[1]["metric"].value


def compare(
    method: Any,
    actual: Tensor,
    expected: Tensor,
    least: int = 2,
    *,
    features: Tensor | None = None,
    unreached: tuple[str, ...] | None = None,
    of_size: float = 0.0,
) -> set[str]:
    """Compare the value and the gradient of each parameter; return the names of those that get one.

    Args:
        least: so many parameters get one. unreached: or all but these, which are not compared.
        features: a further leaf. of_size: tolerance as a share of a gradient's largest entry.
    """
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-12, check_dtype=False)
    leaves = {n: p for n, p in method.named_parameters() if n not in (unreached or ())}
    if features is not None:
        leaves["features"] = features
    options: Any = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    ours = torch.autograd.grad(actual, list(leaves.values()), **options)
    loops = torch.autograd.grad(expected, list(leaves.values()), **options)
    for name, gradient, of_loops in zip(leaves, ours, loops, strict=True):
        atol = max(1e-10, of_size * float(of_loops.abs().max()))
        torch.testing.assert_close(
            gradient, of_loops, rtol=1e-6, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )
    reached = {name for name, gradient in zip(leaves, ours, strict=True) if gradient.any()}
    assert len(reached) >= (least if unreached is None else len(leaves))
    return reached


compare_all = partial(compare, unreached=())  # where every parameter gets a gradient
