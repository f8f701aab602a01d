"""What goes into DetReg's flows: the head's output as it is, or of a fixed length."""

from __future__ import annotations

import pytest
import torch

from tests.oracles import detreg as oracle
from tests.oracles import losses as loss_oracle
from tests.trainables.methods.detreg_cases import (
    LABELS,
    D,
    built,
    expected_r,
    flow_input,
    inputs,
    step,
)
from tests.trainables.methods.method_on import compare

LENGTHS = pytest.mark.parametrize("length", ["raw", "unit", "sqrt_d"])


@LENGTHS
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "none"])
def test_length_then_activation_stand_between_head_and_flow(activation: str, length: str) -> None:
    options = {"activation": activation, "input": length, "normalize": False}
    method = built(flow={"depth": 0}, loss="pulls", **options)
    z = method.head(inputs())
    if length != "raw":
        z = z / z.norm(dim=1, keepdim=True) * (D**0.5 if length == "sqrt_d" else 1)
    expected = {
        "relu": z.clamp_min(0),
        "leaky_relu": torch.where(z > 0, z, 0.01 * z),
        "tanh": z.tanh(),
        "none": z,
    }[activation]
    torch.testing.assert_close(step(method)[0].query, expected)


@LENGTHS
@pytest.mark.parametrize("activation", ["relu", "none"])
def test_every_term_by_loops(length: str, activation: str) -> None:
    """Value and gradient of R₁, R₂, with augmented points, and of the metric loss."""
    method = built(input=length, activation=activation, epsilon=0.3)
    _, terms = step(method)
    compare(method, terms["r1"].value, expected_r(method, method.flow1))
    compare(method, terms["r2"].value, expected_r(method, method.flow2))
    layers = oracle.layers_of(method.flow1)
    out = torch.stack([oracle.through(layers, row) for row in flow_input(method)])
    sets = [{y} for y in LABELS]
    expected = loss_oracle.normsoftmax(out, method.loss.weights, sets, 0.05)
    compare(method, terms["metric"].value, expected)


@LENGTHS
def test_where_the_head_gives_nothing(length: str) -> None:
    """z = 0 has no direction: value and gradient are finite all the same."""
    method = built(input=length, activation="none")
    with torch.no_grad():
        method.head.weight.zero_()
    _, terms = step(method)
    total = sum(term.weight * term.value for term in terms.values())
    assert total.isfinite()
    total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
