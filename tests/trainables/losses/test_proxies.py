"""Proxy-NCA, Proxy-NCA++, NIR's form and SoftTriple by loops, their readings and their starts."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch

from tests.oracles import proxies as oracle
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
from trainables.losses.proxies import draw_initial_proxies


def in_classes(centres: torch.Tensor) -> torch.Tensor:
    return centres.view(C, -1, D)


def soft_triple(**options: float) -> Any:
    given = {"scale": 20.0, "gamma": 0.1, "margin": 0.01} | options
    return lambda x, p, labels: oracle.soft_triple(x, in_classes(p), labels, **given)


# name, options, oracle of (x, references, labels), and its own options
FORMS: list[tuple[str, dict[str, Any], Any]] = [
    ("proxy_nca", {}, partial(oracle.proxy_nca, scale=1)),
    ("proxy_nca", {"scale": 64.0}, partial(oracle.proxy_nca, scale=64)),
    (
        "proxy_nca",
        {"denominator": "all", "scale": 3.0},
        partial(oracle.proxy_nca, scale=3, every=True),
    ),
    ("proxy_nca_pp", {}, partial(oracle.proxy_nca, scale=9, every=True)),
    ("proxy_nca_nir", {}, partial(oracle.proxy_nca_nir, alpha=32, margin=0.1)),
    (
        "proxy_nca_nir",
        {"alpha": 64.0, "margin": 0.3},
        partial(oracle.proxy_nca_nir, alpha=64, margin=0.3),
    ),
    ("soft_triple", {}, soft_triple()),
    (
        "soft_triple",
        {"centres": 2, "scale": 64.0, "gamma": 1.0, "margin": 0.2},
        soft_triple(scale=64, gamma=1, margin=0.2),
    ),
    ("soft_triple", {"centres": 1}, soft_triple()),
]


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize(("name", "options", "loops"), FORMS)
def test_by_loops(name: str, options: dict[str, Any], loops: Any, sets: list[set[int]]) -> None:
    loss = made(name, **options).double()
    x, labels = batch(sets)
    p = loss.references().vectors
    same_value_and_gradients(value(loss, x, labels), loops(x, p, whole(sets)), [x, p])


@pytest.mark.parametrize(("name", "options", "loops"), FORMS)
def test_fractional_weights_by_loops(name: str, options: dict[str, Any], loops: Any) -> None:
    loss = made(name, **options).double()
    x, labels, pairs = shared(loss)
    p = loss.references().vectors
    same_value_and_gradients(value(loss, x, labels, pairs), loops(x, p, SHARES), [x, p])


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


@pytest.mark.parametrize("centres", [2, 10])
def test_distances_of_centres_by_loops(centres: int) -> None:
    loss = made("soft_triple", centres=centres).double()
    (found, weight) = loss.penalty()["centres"]
    assert weight == 0.2
    expected = oracle.centre_distances(in_classes(loss.centres))
    same_value_and_gradients(found, expected, [loss.centres])


def test_one_centre_has_no_distance_and_equal_centres_have_gradient_zero() -> None:
    assert made("soft_triple", centres=1).penalty() == {}
    loss = made("soft_triple", centres=3)
    with torch.no_grad():
        loss.centres.copy_(torch.ones_like(loss.centres))
    found, _ = loss.penalty()["centres"]
    found.backward()
    assert found.abs() < 1e-5
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
def test_starts(init: Any) -> None:
    with streams.seed_global_generator(0, "start"):
        values = draw_initial_proxies(400, 300, init)
    assert values.mean().abs().item() < 4 * STARTS[init] / math.sqrt(400 * 300)
    assert values.std().item() == pytest.approx(STARTS[init], rel=0.01)
    if "uniform" in init:
        assert values.abs().max().item() <= STARTS[init] * math.sqrt(3)


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("normsoftmax", "uniform"),
        ("cosface", "uniform"),
        ("arcface", "uniform"),
        ("sphereface", "uniform"),
        ("proxy_anchor", "kaiming"),
        ("proxy_nca", "randn8"),
        ("proxy_nca_pp", "randn8"),
        ("proxy_nca_nir", "randn8"),
        ("soft_triple", "kaiming_uniform"),
    ],
)
def test_each_loss_starts_as_its_code_does_or_as_told(name: str, init: Any) -> None:
    rows = len(made(name).references().vectors)
    for options, expected in (({}, init), ({"init": "randn8"}, "randn8")):
        with streams.seed_global_generator(3, "loss"):
            values = draw_initial_proxies(rows, D, expected)
        assert torch.equal(made(name, **options).references().vectors, values)
