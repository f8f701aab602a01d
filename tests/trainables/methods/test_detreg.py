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
from tests.trainables.methods import cases
from tests.trainables.methods.cases import C, build_on, compare
from trainables import streams
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs
from trainables.methods.base import Term
from trainables.methods.detreg import DetRegState
from trainables.trial import TrialConfig

B, FEATURES, D = 7, 6, 5  # of an odd size, whose halves differ

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


def built(loss: str = "normsoftmax", **options: Any) -> Any:
    with streams.seed_global_generator(0, "init", "loss"):
        if loss == "pulls":
            base: Loss = Pulls(ComponentConfig(), classes=C, dim=D)
        else:
            base = LOSSES[loss](LOSSES[loss].Config(), classes=C, dim=D)
    options = {"flow": FLOW, "activation": "tanh"} | options
    method = build_on("detreg", base, features=FEATURES, dim=D, **options)
    for flow in (method.flow1, method.flow2):
        if flow is not None and flow.scale is not None:
            with torch.no_grad():
                flow.scale.copy_(torch.linspace(-1, 1, D))
    return method


def inputs(n: int = B) -> Tensor:
    return 2 * torch.randn(
        n, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )


def step(method: Any, labels: list[int] = LABELS) -> tuple[DetRegState, dict[str, Term]]:
    return cases.step(method, None, inputs(len(labels)), torch.tensor(labels)[:, None])


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


# --- the terms by loops ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["realnvp", "nice", pytest.param("glow", marks=pytest.mark.slow)])
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
