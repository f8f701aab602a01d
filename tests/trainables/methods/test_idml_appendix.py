"""The introspective form of every loss of IDML's Table 1, against loops over its appendix A.

The losses need no edit for it: they are what they are, on the score of the method. Where the
paper sums, the losses take a mean; the loops give sum and number.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import idml as oracle
from tests.trainables.methods.cases import (
    GAMMA,
    SETS,
    TAU,
    B,
    U,
    base,
    build_on,
    compare_all,
    metric,
    slots,
    x,
)
from trainables import streams
from trainables.losses.base import make_pairs

PLAIN_SETS = [{0}, {0}, {1}, {3}, {3}, {1}]
LABELS = [pytest.param(SETS, id="sets"), pytest.param(PLAIN_SETS, id="plain")]


def built(loss: str, options: dict[str, Any] | None = None, **method: Any) -> Any:
    return build_on("idml", base(loss, **(options or {})), mixing="none", **method)


def embedded(method: Any) -> tuple[Tensor, Tensor]:
    features = x()
    s = features @ method.head.weight.T + method.head.bias
    return s, features @ method.uncertainty.weight.T + method.uncertainty.bias


def distances(method: Any, proxies: Tensor | None = None) -> oracle.Pairwise:
    """D_IN(i, j) of two items, or of an item and a proxy of no uncertainty; s of unit length."""
    s, u = embedded(method)
    t = s if proxies is None else proxies
    v = u if proxies is None else torch.zeros(len(proxies), U, dtype=torch.float64)
    return lambda i, j: oracle.distance(s[i], t[j], u[i], v[j], TAU, GAMMA, unit=True)


def similarities(method: Any) -> oracle.Pairwise:
    s, u = embedded(method)
    return lambda i, j: oracle.similarity(s[i], s[j], u[i], u[j], TAU, GAMMA)


def value(method: Any, sets: list[set[int]]) -> Tensor:
    return metric(method, x(), slots(sets))


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("mining", ["semihard", "all"])
def test_triplet_is_eq_12_and_13(mining: str, sets: list[set[int]]) -> None:
    method = built("triplet_l2", {"mining": mining, "average": "mined", "margin": 0.3})
    loops = oracle.triplet_semihard if mining == "semihard" else oracle.triplet_all
    total, count = loops(distances(method), sets, 0.3)
    assert count > 3
    compare_all(method, value(method, sets), total / count)


@pytest.mark.parametrize("sets", LABELS)
def test_proxy_nca_is_eq_14(sets: list[set[int]]) -> None:
    """With the sign corrected, on −D_IN; by default on −D_IN², for its own distance is squared."""
    plain, squared = built("proxy_nca", squared="plain"), built("proxy_nca")
    d = distances(plain, plain.loss.proxies)
    compare_all(plain, value(plain, sets), oracle.proxy_nca(d, sets, 5))
    d = distances(squared, squared.loss.proxies)
    expected = oracle.proxy_nca(lambda i, p: d(i, p) ** 2, sets, 5)
    compare_all(squared, value(squared, sets), expected)


@pytest.mark.parametrize("sets", LABELS)
def test_contrastive_is_eq_15(sets: list[set[int]]) -> None:
    method = built("contrastive", {"margin": 0.9, "average": "all"})
    near, far = oracle.contrastive(distances(method), sets, 0.9)
    positives = sum(len(oracle.same(sets, i)) for i in range(B))
    negatives = sum(len(oracle.other(sets, i)) for i in range(B))
    compare_all(method, value(method, sets), near / positives + far / negatives)


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("mining", ["max_plus_epsilon", "idml_printed"])
def test_multi_similarity_is_eq_16_and_17(mining: str, sets: list[set[int]]) -> None:
    options = {"alpha": 2.0, "beta": 10.0, "threshold": 0.6, "epsilon": 0.05, "mining": mining}
    method = built("multi_similarity", options)
    expected = oracle.multi_similarity(
        similarities(method), sets, 2.0, 10.0, 0.6, 0.05, printed=mining == "idml_printed"
    )
    compare_all(method, value(method, sets), expected)


@pytest.mark.parametrize("sampling", ["distance_weighted", "uniform"])
def test_margin_is_eq_7(sampling: str) -> None:
    """ξ = β − α and ω = β + α of the margin loss; negatives drawn by D_IN, one for each (a, p)."""
    sets = PLAIN_SETS
    method = built("margin", {"margin": 0.2, "beta": 0.9, "sampling": sampling})
    d = distances(method)
    labels = slots(sets)
    state = method(x(), labels, None, streams.create_generator(0, "m"))
    own = -method.score(state.query, state.query, method.loss.geometry).detach()
    pairs = make_pairs(labels, labels, self_index=torch.arange(B))
    chosen = method.loss.draw_negatives(own, pairs, streams.create_generator(0, "loss"))
    drawn = [(a, int(chosen[a, p])) for a in range(B) for p in oracle.same(sets, a)]
    total, count = oracle.margin(d, sets, drawn, 0.9 - 0.2, 0.9 + 0.2)
    assert count > 0
    found = value(method, sets)
    torch.testing.assert_close(found, total / count, rtol=1e-6, atol=0)
    compare_all(method, found, total / count, unreached=("loss.beta",))


def test_fastap_ranks_by_d_in_squared() -> None:
    """No equation in the appendix: the loss's own histogram, over D_IN² in place of the squared
    distance, in the same [0, 4]."""
    method = built("fastap")
    d = distances(method)
    zero = torch.zeros((), dtype=torch.float64)
    rows = [[zero if i == j else -(d(i, j) ** 2) for j in range(B)] for i in range(B)]
    labels = slots(SETS)
    pairs = make_pairs(labels, labels, self_index=torch.arange(B))
    expected = method.loss(torch.stack([torch.stack(row) for row in rows]), pairs)
    compare_all(method, value(method, SETS), expected)
