"""Losses and terms have static shapes and no branches on data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.components import FOREIGN, labels_for, trial
from tests.trainables.losses.readings import METHODS
from tests.trainables.support import mark_slow_pairs
from trainables import streams
from trainables.core.network import build_method
from trainables.losses.base import LOSSES
from trainables.methods.base import Method, Progress, Term
from trainables.trial import TrialConfig

FEATURES, D, C, B = 6, 4, 3, 6
# Losses that sample pairs. Dynamo cannot trace a draw from a torch.Generator: their graph is
# in two parts, before and after the draw.
DRAWING = {"margin", "triplet_l2"}


def config(method: dict[str, Any], loss: str) -> TrialConfig | str:
    return trial(method, loss, embedding={"dim": D})


def built(method: dict[str, Any], loss: str) -> tuple[Method, Any]:
    accepted = config(method, loss)
    assert isinstance(accepted, TrialConfig)
    network = build_method(accepted, features=FEATURES, classes=C, seed=0)
    x = torch.randn(B, FEATURES, generator=streams.generator(0, "x"))
    return network, network(x, labels_for(loss, B, C), Progress(), streams.generator(0, "method"))


def terms(method: Method, state: Any, labels: Tensor) -> dict[str, Term]:
    return method.terms(state, labels, Progress(), streams.generator(0, "loss"))


OURS = [name for name in LOSSES if name not in FOREIGN]
pairs = pytest.mark.parametrize(
    ("method", "loss"),
    mark_slow_pairs(METHODS, OURS, lambda method, loss: not isinstance(config(method, loss), str)),
)


@pairs
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
