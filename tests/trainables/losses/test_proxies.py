"""Proxy-NCA, Proxy-NCA++, NIR's form and SoftTriple by loops, their readings and their starts."""

from __future__ import annotations

import math
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
from trainables.losses.proxies import start


def in_classes(centres: torch.Tensor) -> torch.Tensor:
    return centres.view(C, -1, D)


# name, options, oracle of (x, references, labels)
FORMS: list[Any] = [
    pytest.param(
        "proxy_nca", {}, lambda x, p, labels: oracle.proxy_nca(x, p, labels, 1), id="proxy_nca"
    ),
    pytest.param(
        "proxy_nca",
        {"scale": 64.0},
        lambda x, p, labels: oracle.proxy_nca(x, p, labels, 64),
        id="proxy_nca scaled",
    ),
    pytest.param(
        "proxy_nca",
        {"denominator": "all", "scale": 3.0},
        lambda x, p, labels: oracle.proxy_nca(x, p, labels, 3, every=True),
        id="proxy_nca all",
    ),
    pytest.param(
        "proxy_nca_pp",
        {},
        lambda x, p, labels: oracle.proxy_nca(x, p, labels, 9, every=True),
        id="proxy_nca_pp",
    ),
    pytest.param(
        "proxy_nca_nir",
        {},
        lambda x, p, labels: oracle.proxy_nca_nir(x, p, labels, 32, 0.1),
        id="proxy_nca_nir",
    ),
    pytest.param(
        "proxy_nca_nir",
        {"alpha": 64.0, "margin": 0.3},
        lambda x, p, labels: oracle.proxy_nca_nir(x, p, labels, 64, 0.3),
        id="proxy_nca_nir steep",
    ),
    pytest.param(
        "soft_triple",
        {},
        lambda x, p, labels: oracle.soft_triple(
            x, in_classes(p), labels, scale=20, gamma=0.1, margin=0.01
        ),
        id="soft_triple",
    ),
    pytest.param(
        "soft_triple",
        {"centres": 2, "scale": 64.0, "gamma": 1.0, "margin": 0.2},
        lambda x, p, labels: oracle.soft_triple(
            x, in_classes(p), labels, scale=64, gamma=1, margin=0.2
        ),
        id="soft_triple 2",
    ),
    pytest.param(
        "soft_triple",
        {"centres": 1},
        lambda x, p, labels: oracle.soft_triple(
            x, in_classes(p), labels, scale=20, gamma=0.1, margin=0.01
        ),
        id="soft_triple 1",
    ),
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


@pytest.mark.parametrize("name", ["proxy_nca", "proxy_nca_pp", "proxy_nca_nir"])
def test_a_query_of_every_class_is_only_drawn(name: str) -> None:
    """A set that holds every class leaves no negative; both denominators stay defined."""
    loss = made(name, classes=2).double()
    x, labels = batch([{0, 1}, {0}])
    found = value(loss, x, labels)
    loops: Any = {
        "proxy_nca": lambda: oracle.proxy_nca(x, loss.proxies, whole([{0, 1}, {0}]), 1),
        "proxy_nca_pp": lambda: oracle.proxy_nca(
            x, loss.proxies, whole([{0, 1}, {0}]), 9, every=True
        ),
        "proxy_nca_nir": lambda: oracle.proxy_nca_nir(
            x, loss.proxies, whole([{0, 1}, {0}]), 32, 0.1
        ),
    }
    same_value_and_gradients(found, loops[name](), [x, loss.proxies])


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
    with streams.seeded(0, "start"):
        values = start(400, 300, init)
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
        with streams.seeded(3, "loss"):
            values = start(rows, D, expected)
        assert torch.equal(made(name, **options).references().vectors, values)
