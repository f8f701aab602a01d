"""Losses and terms have static shapes and no branches on data, and take tensors as weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.components import FOREIGN, labels_for, trial
from tests.trainables.losses.readings import METHODS
from trainables import streams
from trainables.core.network import build_method
from trainables.losses.base import LOSSES
from trainables.methods.base import Method, Progress, Term

FEATURES, D, C, B = 6, 4, 3, 6
# Losses that sample pairs. Dynamo cannot trace a draw from a torch.Generator: their graph is
# in two parts, before and after the draw.
DRAWING = {"margin", "triplet_l2"}


def built(method: dict[str, Any], loss: str) -> tuple[Method, Any]:
    config = trial(method, loss, embedding={"dim": D})
    if isinstance(config, str):
        pytest.skip(f"refused: {config}")
    network = build_method(config, features=FEATURES, classes=C, seed=0)
    x = torch.randn(B, FEATURES, generator=streams.generator(0, "x"))
    return network, network(x, labels_for(loss, B, C), Progress(), streams.generator(0, "method"))


def terms(method: Method, state: Any, labels: Tensor) -> dict[str, Term]:
    return method.terms(state, labels, Progress(), streams.generator(0, "loss"))


def tunable(method: Method) -> list[tuple[Any, str]]:
    """Every number of loss and method, which must stand as an attribute of its own name, so
    that it may be a tensor; a class names in `STATIC` what shapes the graph instead."""
    places: list[tuple[Any, str]] = []
    for owner in (method.loss, method):
        static = getattr(type(owner), "STATIC", ())
        for name, field in type(owner).Config.model_fields.items():
            if field.annotation is float and name not in static:
                assert isinstance(getattr(owner, name), float), (type(owner), name)
                places.append((owner, name))
    return places


def thirds() -> list[Any]:
    """Every method with every loss; a third of the pairs, in which each of both stands, are quick:
    a compilation takes seconds."""
    ours = [name for name in LOSSES if name not in FOREIGN]
    return [
        pytest.param(
            method,
            loss,
            id=f"{method['name']}{i}-{loss}",
            marks=[pytest.mark.slow] if (i + j) % 3 else [],
        )
        for i, method in enumerate(METHODS)
        for j, loss in enumerate(ours)
    ]


@pytest.mark.parametrize(("method", "loss"), thirds())
def test_terms_compile_as_one_graph(method: dict[str, Any], loss: str) -> None:
    network, state = built(method, loss)
    draws = streams.generator(0, "loss")
    torch.compiler.reset()  # it counts all compilations of one code object, and gives up at eight

    @torch.compile(fullgraph=loss not in DRAWING, backend="eager")
    def compiled(state: Any, labels: Tensor) -> dict[str, Tensor]:
        made = network.terms(state, labels, Progress(), draws)
        return {name: term.value for name, term in made.items()}

    labels = labels_for(loss, B, C)
    found = compiled(state, labels)
    for name, (value, _) in terms(network, state, labels).items():
        assert torch.equal(found[name], value), name


NUMBERLESS = {
    "fastap": "its only number is a count of bins, which shapes the graph",
    "softmax": "it has none unless labels are smoothed",
}


@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in FOREIGN])
@pytest.mark.parametrize("method", METHODS)
def test_many_configurations_at_once(method: dict[str, Any], loss: str) -> None:
    network, state = built(method, loss)
    labels = labels_for(loss, B, C)
    places = tunable(network)
    if not places:
        assert method["name"] == "plain" and loss in NUMBERLESS, "has numbers"
        pytest.skip(NUMBERLESS[loss])

    def total(values: tuple[Tensor, ...]) -> Tensor:
        for (owner, name), value in zip(places, values, strict=True):
            setattr(owner, name, value)
        summands = [weight * value for value, weight in terms(network, state, labels).values()]
        return torch.stack(summands).sum()

    draw = streams.generator(0, "grid")
    grid = tuple(0.5 + torch.rand(5, generator=draw) for _ in places)
    expected = torch.stack([total(tuple(v[i] for v in grid)) for i in range(5)])
    # Each configuration's draws are alike, as those of `expected` are.
    torch.testing.assert_close(torch.func.vmap(total, randomness="same")(grid), expected)
