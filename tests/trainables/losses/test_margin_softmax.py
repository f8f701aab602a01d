"""CosFace, ArcFace and SphereFace: by loops, and where the cosine ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import margins as oracle
from tests.trainables.losses.cases import (
    LABELS,
    SHARES,
    batch,
    made,
    same_value_and_gradients,
    shared,
    value,
    whole,
)
from trainables.losses.margin_softmax import MarginSoftmax

# Margins of 2 and above put about half of the random angles beyond π − m, or past k = 0.
FORMS: list[Any] = [
    pytest.param("cosface", {"margin": 0.35}, oracle.cosface(0.35), id="cosface"),
    pytest.param("arcface", {"margin": 0.5}, oracle.arcface(0.5, "linear"), id="arcface"),
    pytest.param("arcface", {"margin": 2.0}, oracle.arcface(2.0, "linear"), id="arcface wide"),
    pytest.param(
        "arcface",
        {"margin": 2.0, "beyond": "printed"},
        oracle.arcface(2.0, "printed"),
        id="arcface printed",
    ),
    pytest.param("sphereface", {"margin": 1.5}, oracle.sphereface(1.5, 0), id="sphereface"),
    pytest.param("sphereface", {"margin": 4.0}, oracle.sphereface(4, 0), id="sphereface 4"),
    pytest.param(
        "sphereface",
        {"margin": 3.0, "relaxation": 5.0},
        oracle.sphereface(3, 5),
        id="sphereface relaxed",
    ),
]
Psi = Callable[[Tensor], Tensor]


def margin_loss(name: str, **options: Any) -> MarginSoftmax:
    loss = made(name, **options).double()
    assert isinstance(loss, MarginSoftmax)
    return loss


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("scale", [1.0, 64.0])
@pytest.mark.parametrize(("name", "options", "psi"), FORMS)
def test_by_loops(
    name: str, options: dict[str, Any], psi: Psi, scale: float, sets: list[set[int]]
) -> None:
    loss = margin_loss(name, scale=scale, **options)
    x, labels = batch(sets)
    expected = oracle.margin_softmax(x, loss.weights, whole(sets), scale, psi)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.weights])


@pytest.mark.parametrize(("name", "options", "psi"), FORMS)
def test_fractional_weights_by_loops(name: str, options: dict[str, Any], psi: Psi) -> None:
    loss = margin_loss(name, scale=8.0, **options)
    x, labels, pairs = shared(loss)
    expected = oracle.margin_softmax(x, loss.weights, SHARES, 8, psi)
    same_value_and_gradients(value(loss, x, labels, pairs), expected, [x, loss.weights])


@pytest.mark.parametrize(("name", "options", "psi"), FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_ends_of_the_cosine(
    name: str, options: dict[str, Any], psi: Psi, dtype: torch.dtype
) -> None:
    """c = ±1 and a rounding beyond, as a duplicate of a proxy gives it: ψ(0), ψ(π), finite
    gradients; and one rounding inside."""
    loss = margin_loss(name, **options)
    step = torch.finfo(dtype).eps
    ends = [-1 - step, -1.0, -1 + step, 1 - step, 1.0, 1 + step]
    c = torch.tensor(ends, dtype=dtype, requires_grad=True)
    found = loss.target(c)
    angles = torch.tensor([e if abs(e) < 1 else math.copysign(1, e) for e in ends]).double()
    expected = torch.stack([psi(theta) for theta in angles.acos()])
    tolerance = 4 * options["margin"] ** 2 * step**0.5  # of an angle known to √eps
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
    (gradient,) = torch.autograd.grad(found.sum(), c)
    assert gradient.isfinite().all()
