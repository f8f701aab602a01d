"""Losses with references of each class: values and gradients by loops, and how they start."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import losses as oracles
from tests.oracles import margins, proxies
from tests.trainables.losses.cases import (
    LABELS,
    SHARES,
    C,
    D,
    batch,
    made,
    same_value_and_gradients,
    shared,
    value,
    whole,
)
from trainables import streams
from trainables.losses import geometry
from trainables.losses.base import Loss, make_pairs
from trainables.losses.margin_softmax import MarginSoftmax
from trainables.losses.proxies import draw_initial_proxies
from trainables.losses.proxy_anchor import log_one_plus_column_sum


def soft_triple(**options: float) -> Any:
    settings = {"scale": 20.0, "gamma": 0.1, "margin": 0.01} | options
    return lambda x, p, labels: proxies.soft_triple(x, p.view(C, -1, D), labels, **settings)


# name, options, oracle of (x, references, labels with weights)
FORMS: list[tuple[str, dict[str, Any], Any]] = [
    ("proxy_nca", {}, partial(proxies.proxy_nca, scale=1)),
    ("proxy_nca", {"scale": 64.0}, partial(proxies.proxy_nca, scale=64)),
    (
        "proxy_nca",
        {"denominator": "all", "scale": 3.0},
        partial(proxies.proxy_nca, scale=3, every=True),
    ),
    ("proxy_nca_pp", {}, partial(proxies.proxy_nca, scale=9, every=True)),
    ("proxy_nca_nir", {}, partial(proxies.proxy_nca_nir, alpha=32, margin=0.1)),
    (
        "proxy_nca_nir",
        {"alpha": 64.0, "margin": 0.3},
        partial(proxies.proxy_nca_nir, alpha=64, margin=0.3),
    ),
    ("soft_triple", {}, soft_triple()),
    (
        "soft_triple",
        {"centres": 2, "scale": 64.0, "gamma": 1.0, "margin": 0.2},
        soft_triple(scale=64, gamma=1, margin=0.2),
    ),
    ("soft_triple", {"centres": 1}, soft_triple()),
]
# Margins of 2 and above put about half of the random angles beyond π − m, or past k = 0.
MARGINS: list[tuple[str, dict[str, Any], Any]] = [
    ("cosface", {"margin": 0.35}, margins.cosface(0.35)),
    ("arcface", {"margin": 0.5}, margins.arcface(0.5, "linear")),
    ("arcface", {"margin": 2.0}, margins.arcface(2.0, "linear")),
    ("arcface", {"margin": 2.0, "beyond": "printed"}, margins.arcface(2.0, "printed")),
    ("sphereface", {"margin": 1.5}, margins.sphereface(1.5, 0)),
    ("sphereface", {"margin": 4.0}, margins.sphereface(4, 0)),
    ("sphereface", {"margin": 3.0, "relaxation": 5.0}, margins.sphereface(3, 5)),
]
FORMS += [
    (name, {**options, "scale": scale}, partial(margins.margin_softmax, scale=scale, psi=psi))
    for name, options, psi in MARGINS
    for scale in (1.0, 64.0)
]
# The oracles of these take sets of labels, without weights.
OF_SETS: list[tuple[str, dict[str, Any], Any]] = [
    *(
        (
            "proxy_anchor",
            {"alpha": a, "margin": 0.2},
            partial(oracles.proxy_anchor, alpha=a, margin=0.2),
        )
        for a in (1.0, 32.0, 64.0)
    ),
    *(
        ("normsoftmax", {"temperature": t}, partial(oracles.normsoftmax, temperature=t))
        for t in (0.05, 1.0)
    ),
]


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize(("name", "options", "loops"), [*FORMS, *OF_SETS])
def test_by_loops(name: str, options: dict[str, Any], loops: Any, sets: list[set[int]]) -> None:
    loss = made(name, **options).double()
    x, labels = batch(sets)
    p = loss.references().vectors
    classes: Any = sets if (name, options, loops) in OF_SETS else whole(sets)
    same_value_and_gradients(value(loss, x, labels), loops(x, p, classes), [x, p])


@pytest.mark.parametrize(("name", "options", "loops"), FORMS)
def test_fractional_weights_by_loops(name: str, options: dict[str, Any], loops: Any) -> None:
    loss = made(name, **options).double()
    x, labels, pairs = shared(loss)
    p = loss.references().vectors
    same_value_and_gradients(value(loss, x, labels, pairs), loops(x, p, SHARES), [x, p])


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize(
    ("name", "smoothing"),
    [("softmax", None), ("softmax", 0.1), ("softmax", 0.5), ("normsoftmax", 0.1)],
)
def test_label_smoothing_by_loops(name: str, smoothing: float | None, sets: list[set[int]]) -> None:
    loss: Any = made(name, label_smoothing=smoothing).double()
    x, labels = batch(sets)
    leaves = [x, loss.weights]
    if name == "softmax":
        with torch.no_grad():
            loss.bias.copy_(torch.linspace(-1, 2, len(loss.bias)))
        leaves.append(loss.bias)

    def score(row: Tensor, c: int) -> Tensor:
        if name == "softmax":
            return oracles.product(row, loss.weights[c]) + loss.bias[c]
        return oracles.cosine(row, loss.weights[c]) / 0.05

    logits = [[score(row, c) for c in range(C)] for row in x]
    expected = oracles.smoothed_softmax(logits, sets, smoothing or 0.0)
    same_value_and_gradients(value(loss, x, labels), expected, leaves)


@pytest.mark.parametrize(
    ("name", "loops"),
    [(name, loops) for name, options, loops in FORMS if not options and name != "soft_triple"],
)
def test_a_query_of_every_class_is_only_drawn(name: str, loops: Any) -> None:
    """A set that holds every class leaves no negative; both denominators stay defined."""
    loss = made(name, classes=2).double()
    sets: list[set[int]] = [{0, 1}, {0}]
    x, labels = batch(sets)
    expected = loops(x, loss.proxies, whole(sets))
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.proxies])


def test_proxies_without_a_positive_pull_nothing() -> None:
    loss, alone = made("proxy_anchor"), made("proxy_anchor", classes=2)
    x = torch.randn(4, D, generator=streams.create_generator(0, "x"))
    labels = torch.tensor([0, 0, 1, 1])
    with torch.no_grad():
        alone.proxies.copy_(loss.proxies[:2])

    def attract(loss: Loss) -> Tensor:
        pairs = make_pairs(labels, loss.references().labels)
        pairs.neg.zero_()
        return loss(geometry.score(x, loss.proxies, loss.geometry), pairs)

    torch.testing.assert_close(attract(loss), attract(alone))


def test_a_large_gathered_sum_is_unchanged_in_float32_and_right_in_float64() -> None:
    x = torch.linspace(15, 60, 200, dtype=torch.float64)[None]
    one = torch.ones_like(x)
    expected = x[0] + torch.log1p(torch.exp(-x[0]))
    torch.testing.assert_close(log_one_plus_column_sum(x, one), expected, rtol=1e-15, atol=0)
    single = x.float()
    assert torch.equal(
        log_one_plus_column_sum(single, one.float()), torch.nn.functional.softplus(single[0])
    )


@pytest.mark.parametrize(("name", "options", "psi"), MARGINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_ends_of_the_cosine(
    name: str, options: dict[str, Any], psi: Any, dtype: torch.dtype
) -> None:
    """c = ±1 and a rounding beyond, as a duplicate of a proxy gives it: ψ(0), ψ(π), finite
    gradients; and one rounding inside."""
    loss = made(name, **options).double()
    assert isinstance(loss, MarginSoftmax)
    step = torch.finfo(dtype).eps
    ends = [-1 - step, -1.0, -1 + step, 1 - step, 1.0, 1 + step]
    c = torch.tensor(ends, dtype=dtype, requires_grad=True)
    target = loss.target(c)
    angles = torch.tensor([e if abs(e) < 1 else math.copysign(1, e) for e in ends]).double()
    expected = torch.stack([psi(theta) for theta in angles.acos()])
    tolerance = 4 * options["margin"] ** 2 * step**0.5  # of an angle known to √eps
    torch.testing.assert_close(target.double(), expected, rtol=0, atol=tolerance)
    (gradient,) = torch.autograd.grad(target.sum(), c)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("centres", [2, 10])
def test_distances_of_centres_by_loops(centres: int) -> None:
    loss = made("soft_triple", centres=centres).double()
    penalty, weight = loss.penalty()["centres"]
    assert weight == 0.2
    expected = proxies.centre_distances(loss.centres.view(C, -1, D))
    same_value_and_gradients(penalty, expected, [loss.centres])


def test_one_centre_has_no_distance_and_equal_centres_have_gradient_zero() -> None:
    assert made("soft_triple", centres=1).penalty() == {}
    loss = made("soft_triple", centres=3)
    with torch.no_grad():
        loss.centres.copy_(torch.ones_like(loss.centres))
    penalty, _ = loss.penalty()["centres"]
    penalty.backward()
    assert penalty.abs() < 1e-5
    assert loss.centres.grad.isfinite().all()


STARTS = {
    "kaiming": math.sqrt(2 / 400),
    "uniform": 1 / math.sqrt(3 * 300),
    "kaiming_uniform": 1 / math.sqrt(3 * 400),
    "randn": 1.0,
    "randn8": 1 / 8,
    "normal": 0.01,
}


@pytest.mark.parametrize("init", STARTS)
def test_initial_values_have_their_deviation(init: Any) -> None:
    with streams.seed_global_generator(0, "start"):
        values = draw_initial_proxies(400, 300, init)
    assert values.mean().abs().item() < 4 * STARTS[init] / math.sqrt(400 * 300)
    assert values.std().item() == pytest.approx(STARTS[init], rel=0.01)
    if "uniform" in init:
        assert values.abs().max().item() <= STARTS[init] * math.sqrt(3)


@pytest.mark.parametrize(
    ("name", "init"),
    [
        *((name, "uniform") for name in ("normsoftmax", "cosface", "arcface", "sphereface")),
        *((name, "randn8") for name in ("proxy_nca", "proxy_nca_pp", "proxy_nca_nir")),
        ("proxy_anchor", "kaiming"),
        ("soft_triple", "kaiming_uniform"),
    ],
)
def test_each_loss_starts_as_its_code_does_or_as_configured(name: str, init: Any) -> None:
    rows = len(made(name).references().vectors)
    for options, expected in (({}, init), ({"init": "randn8"}, "randn8")):
        with streams.seed_global_generator(3, "loss"):
            values = draw_initial_proxies(rows, D, expected)
        assert torch.equal(made(name, **options).references().vectors, values)
