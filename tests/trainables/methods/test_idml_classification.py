"""IDML where classes are told: both forms against loops, alone and mixed; what it answers by."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import idml as oracle
from tests.trainables.methods.cases import (
    GAMMA,
    SETS,
    TAU,
    C,
    U,
    base,
    build_on,
    compare_all,
    metric,
    slots,
    x,
)
from trainables import streams
from trainables.core.identity import compute_config_hash
from trainables.losses.base import Loss
from trainables.methods.base import Batch, compute_class_logits
from trainables.trial import TrialConfig

PAPER = {"tau": 1.0, "gamma": 0.0}
ONE = torch.tensor([0, 0, 1, 3, 3, 4])[:, None]


def softmax() -> Loss:
    loss = base("softmax").double()
    with torch.no_grad():
        loss.bias.copy_(torch.linspace(-0.5, 0.7, C))  # type: ignore[union-attr,operator]
    return loss


def heads(method: Any, features: Tensor) -> tuple[Tensor, Tensor]:
    s = features @ method.head.weight.T + method.head.bias
    return s, features @ method.uncertainty.weight.T + method.uncertainty.bias


def paper(method: Any, features: Tensor) -> oracle.Pairwise:
    """C_IN at τ = 1, γ = 0 (section 4.1)."""
    (s, u), w = heads(method, features), method.loss.weights
    nothing = torch.zeros(U, dtype=torch.float64)
    return lambda i, j: oracle.similarity(s[i], w[j], u[i], nothing, 1.0, 0.0)


def public(method: Any, features: Tensor, tau: float, gamma: float) -> oracle.Pairwise:
    (s, u), loss = heads(method, features), method.loss
    w, b = loss.weights, loss.bias
    return lambda i, j: oracle.public_product(s[i], w[j], u[i], gamma, tau) + b[j]


@pytest.mark.parametrize(("tau", "gamma"), [(5.0, 0.0), (TAU, GAMMA)])
def test_the_public_codes_softmax_by_loops(tau: float, gamma: float) -> None:
    options = {"uncertainty": "relu", "tau": tau, "gamma": gamma}
    method, features = build_on("idml", softmax(), **options), x()
    u = heads(method, features)[1]
    assert (u > 0).any() and (u < 0).any()
    expected = oracle.softmax(public(method, features, tau, gamma), SETS, C, 1.0)
    compare_all(method, metric(method, features, slots(SETS)), expected)


@pytest.mark.parametrize(("tau", "gamma"), [(5.0, 0.0), (TAU, GAMMA)])
def test_the_bias_is_part_of_product_and_distance_by_loops(tau: float, gamma: float) -> None:
    options = {"uncertainty": "relu", "tau": tau, "gamma": gamma, "bias_in_score": True}
    method, features = build_on("idml", softmax(), **options), x()
    (s, u), w, b = heads(method, features), method.loss.weights, method.loss.bias
    assert (b != 0).sum() > 1

    def scored(i: int, j: int) -> Tensor:
        return oracle.public_product(s[i], w[j], u[i], gamma, tau, b[j])

    compare_all(method, metric(method, features, slots(SETS)), oracle.softmax(scored, SETS, C, 1.0))
    answers = compute_class_logits(
        build_on("idml", softmax(), test_metric="introspective", **options), features
    )
    for i in range(len(features)):
        for j in range(C):
            assert answers[i, j].item() == pytest.approx(scored(i, j).item(), rel=1e-6)


def test_bias_in_score_needs_a_bias_and_is_off_by_default() -> None:
    def trial(bias: bool, **method: Any) -> TrialConfig:
        given = {"name": "idml", "mixing": "none", "uncertainty": "relu", **method}
        return TrialConfig.model_validate(
            {"loss": {"name": "softmax", "bias": bias}, "method": given}
        )

    assert trial(True, bias_in_score=False) == trial(True)
    assert compute_config_hash(trial(True), "data") != compute_config_hash(
        trial(True, bias_in_score=True), "data"
    )
    with pytest.raises(ValidationError, match="a loss softmax with a bias"):
        trial(False, bias_in_score=True)
    with pytest.raises(ValidationError, match="bias_in_score needs uncertainty relu"):
        trial(True, uncertainty="vector", metric="plain", bias_in_score=True)


@pytest.mark.parametrize("form", ["paper", "public"])
def test_mixed_images_alone_are_of_both_classes_by_their_share(form: str) -> None:
    """λ L(m, l_i) + (1 − λ) L(m, l_j), the step of Mixup and CutMix."""
    mixing = {"mixing": "mixup", "originals": "replaced"}
    options = PAPER if form == "paper" else {"uncertainty": "relu", "tau": 5.0, "gamma": 0.0}
    loss = base("normsoftmax", temperature=0.3) if form == "paper" else softmax()
    method = build_on("idml", loss, **mixing, **options)
    batch = method.prepare(Batch(x(), ONE), streams.create_generator(0, "prepare"))
    assert len(batch.inputs) == len(ONE)
    mixed = batch.inputs
    c = paper(method, mixed) if form == "paper" else public(method, mixed, 5.0, 0.0)
    share, temperature = method.share.item(), 0.3 if form == "paper" else 1.0
    assert 0 < share < 1
    one, other = ([{label} for label in column] for column in batch.labels.T.tolist())
    expected = share * oracle.softmax(c, one, C, temperature)
    expected = expected + (1 - share) * oracle.softmax(c, other, C, temperature)
    compare_all(method, metric(method, mixed, batch.labels), expected)


@pytest.mark.parametrize(
    ("loss", "method", "message"),
    [
        ("normsoftmax", {"uncertainty": "relu"}, "products with class weights .*not norm"),
        ("n_pair", {"uncertainty": "relu"}, "products with class weights .*not n_pair"),
        (
            "softmax",
            {"uncertainty": "relu", "metric": "ism_dis"},
            "method.metric must be ism_sim, not ism_dis, with uncertainty relu",
        ),
        ("softmax", {}, "geometry of .* is dot"),
    ],
)
def test_each_form_has_its_losses(loss: str, method: dict[str, Any], message: str) -> None:
    given = {"loss": {"name": loss}, "method": {"name": "idml", "mixing": "none", **method}}
    with pytest.raises(ValidationError, match=message):
        TrialConfig.model_validate(given)
