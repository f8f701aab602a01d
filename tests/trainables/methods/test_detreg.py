"""DetReg's terms against loops over the paper's equations; its readings; its neutral form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import detreg as oracle
from tests.oracles import losses as loss_oracle
from tests.trainables.methods.detreg_cases import (
    FLOW,
    LABELS,
    C,
    D,
    built,
    expected_r,
    flow_input,
    inputs,
    step,
)
from tests.trainables.methods.method_on import compare
from trainables.flows.jacobian import compute_flow_jacobian, compute_layer_jacobians
from trainables.trial import TrialConfig

# --- the terms by loops ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["realnvp", "nice", "glow"])
@pytest.mark.parametrize("across", ["sum", "mean", "product"])
def test_r_by_loops(kind: str, across: str) -> None:
    found = {}
    for spectrum in ("diagonal", "singular"):
        method = built(flow=FLOW | {"kind": kind}, across=across, spectrum=spectrum)
        state, terms = step(method)
        found[spectrum] = terms["r1"].value
        # nice's R is of the scaling of a branch alone, or of its layers' weights too
        reaches = {"diagonal": 1, "singular": 2}[spectrum] if kind == "nice" else 10
        compare(method, terms["r1"].value, expected_r(method, method.flow1), reaches)
        if spectrum == "diagonal":
            compare(method, terms["r2"].value, expected_r(method, method.flow2), reaches)
        assert not torch.allclose(state.query, state.second), "each flow has its own start"
    assert not torch.allclose(found["diagonal"], found["singular"], rtol=1e-3)


@pytest.mark.parametrize("proxies", ["shared", "own"])
def test_both_metric_losses_by_loops(proxies: str) -> None:
    method = built(proxies=proxies)
    _, terms = step(method)
    z, sets = flow_input(method), [{y} for y in LABELS]
    for name, flow, loss in (
        ("metric", method.flow1, method.loss),
        ("metric2", method.flow2, method.second_loss or method.loss),
    ):
        layers = oracle.layers_of(flow)
        out = torch.stack([oracle.through(layers, row) for row in z])
        expected = loss_oracle.normsoftmax(out, loss.weights, sets, 0.05)
        compare(method, terms[name].value, expected)


# --- augmented points --------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("printed", [False, True])
def test_augmented_points_by_loops(rank: int, printed: bool) -> None:
    kind = "printed" if printed else "between"
    method = built(augmentation=kind, neighbour=rank, epsilon=0.3)
    z = flow_input(method)
    points, valid = method._augment_points(z, torch.tensor(LABELS)[:, None])
    expected = oracle.augmented(z, LABELS, 0.3, rank=rank, printed=printed)
    assert len(expected) == (5 if rank == 1 else 3)
    torch.testing.assert_close(points[valid > 0], torch.stack(expected))
    _, terms = step(method)
    compare(method, terms["r1"].value, expected_r(method, method.flow1, rank=rank, printed=printed))


def test_no_neighbour_no_point() -> None:
    """With all classes apart, and with too high a rank, R is that of the items alone."""
    alone = list(range(C))
    assert math.isnan(float(observed_of(built(), alone)["r1_augmented"]))
    assert observed_of(built(), alone)["with_neighbour"] == 0
    expected = step(built(augmentation="none"), alone)[1]
    for options in ({}, {"neighbour": 3}, {"neighbour": 100}):
        found = step(built(**options), alone)[1]
        for name in ("metric", "r1", "r2"):
            torch.testing.assert_close(found[name].value, expected[name].value)


# --- R -----------------------------------------------------------------------------------------


def test_nice_needs_its_scaling() -> None:
    """Without it R is constant, and has no gradient."""
    bare = {"depth": 3, "width": 4, "kind": "nice", "scaling": False}
    method = built(flow=bare)
    _, terms = step(method)
    assert terms["r1"].value.item() == pytest.approx(3 * math.log(2), rel=1e-12)
    assert not terms["r1"].value.requires_grad
    scaled = built(flow=bare | {"scaling": None})
    (gradient,) = torch.autograd.grad(step(scaled)[1]["r1"].value, [scaled.flow1.scale])
    assert gradient.abs().min() > 0


def test_jacobians_are_autograds() -> None:
    for kind in ("realnvp", "nice", "glow"):
        flow = built(flow=FLOW | {"kind": kind}).flow1
        x = inputs()[:, :D]
        whole = compute_flow_jacobian(flow, x)
        each = compute_layer_jacobians(flow, x)
        assert len(each) == len(flow.couplings) + 1
        for i in range(len(x)):
            expected = torch.autograd.functional.jacobian(lambda v, f=flow: f(v).z, x[i])
            torch.testing.assert_close(whole[i], expected)
            det = torch.stack([m if m.dim() == 2 else m[i] for m in each]).det().prod()
            torch.testing.assert_close(det.log(), flow(x[i]).log_det)


# --- what goes into the flows -----------------------------------------------------------------

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


# --- options -----------------------------------------------------------------------------------


def test_weights_are_lambda_1_and_minus_lambda_2() -> None:
    _, terms = step(built(lambda1=0.3, lambda2=0.7, second_metric=False))
    weights = {name: term.weight for name, term in terms.items()}
    assert weights == {"metric": 1.0, "r1": 0.3, "r2": -0.7}


def test_one_branch_only() -> None:
    method = built(dueling=False)
    assert method.flow2 is None
    state, terms = step(method)
    assert state.second is None
    assert {name: term.weight for name, term in terms.items()} == {"metric": 1.0, "r1": 0.05}
    both = step(built())[1]
    assert torch.equal(terms["metric"].value, both["metric"].value), "branch 1 starts alike"
    assert torch.equal(terms["r1"].value, both["r1"].value)


def test_proxies_shared_or_own() -> None:
    shared, own = built(), built(proxies="own")
    assert shared.second_loss is None
    assert torch.equal(own.second_loss.weights, own.loss.weights)
    assert own.second_loss.weights is not own.loss.weights
    for method, reaches in ((shared, True), (own, False)):
        value = step(method)[1]["metric2"].value
        (gradient,) = torch.autograd.grad(value, [method.loss.weights], allow_unused=True)
        assert (gradient is not None) == reaches
    proxies = [p for g in own.param_groups("main") if g.role == "proxies" for p in g.params]
    assert len(proxies) == 2
    both = step(built("pulls", proxies="own"))[1]
    assert list(both) == ["metric", "slope", "metric2", "slope2", "r1", "r2"]
    assert both["slope2"].weight == 0.5
    assert list(step(built("pulls"))[1]) == ["metric", "slope", "metric2", "r1", "r2"]


def test_l2_after_the_flow() -> None:
    for options, unit in (({}, True), ({"normalize": False}, False)):
        method = built("pulls", **options)
        z = torch.stack(
            [oracle.through(oracle.layers_of(method.flow1), x) for x in flow_input(method)]
        )
        norm = z.norm(dim=1, keepdim=True)
        expected = z / norm if unit else z
        torch.testing.assert_close(step(method)[0].query, expected)
        torch.testing.assert_close(method.embed(inputs()), expected)


def observed_of(method: Any, labels: list[int] = LABELS) -> dict[str, Tensor]:
    step(method, labels)
    found: dict[str, Tensor] = method.observed()
    return found


def test_what_is_observed() -> None:
    method = built(epsilon=0.3)
    found = observed_of(method)
    assert found["with_neighbour"] == pytest.approx(5 / 7)
    z, layers = flow_input(method), oracle.layers_of(method.flow1)
    for name, points in (
        ("r1_items", list(z)),
        ("r1_augmented", oracle.augmented(z, LABELS, 0.3)),
    ):
        expected = oracle.r_of_set(layers, points, "diagonal", "sum")
        torch.testing.assert_close(found[name], expected.detach())
    expected = method.flow2(z).log_det.mean() / D
    torch.testing.assert_close(found["r2_log_det"], expected.detach())
    assert not any(value.requires_grad for value in found.values())
    assert "r2_items" not in observed_of(built(dueling=False))


# --- what is refused ---------------------------------------------------------------------------


def test_a_rank_that_no_batch_has_is_refused_where_it_augments() -> None:
    message = r"method\.neighbour must be below training\.per_class \(4\), not 4"
    with pytest.raises(ValidationError, match=message):
        TrialConfig(method={"name": "detreg", "neighbour": 4})
    TrialConfig(method={"name": "detreg", "neighbour": 4, "augmentation": "none"})
    TrialConfig(method={"name": "detreg", "neighbour": 4}, training={"per_class": 1})
