"""HIER against loops, its triplets, and what its plan refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.testing.methods import build_trial
from tests.oracles import regularisers as oracles
from tests.trainables.methods.cases import LABELS, SETS, B, base, build_on, compare, slots, step
from trainables import streams
from trainables.methods.hier import draw_triplets

H, DRAWS = 9, 4
OPTIONS = {"ancestors": H, "draws": DRAWS, "neighbours": 4}


def distances(x: Tensor, y: Tensor, c: float, clip: float) -> list[list[Tensor]]:
    return [[oracles.geodesic(a, b, c, clip) for b in y] for a in x]


@pytest.mark.parametrize(
    ("sets", "numbers"),
    [
        ([{y} for y in LABELS], (0.1, 0.1, 0.1, 2.3)),
        (SETS, (0.7, 0.5, 1.0, 0.8)),  # all embeddings are longer than the clip
    ],
)
def test_value_and_gradients_by_loops(sets: Any, numbers: tuple[float, ...]) -> None:
    tau, margin, c, clip = numbers
    changes = {"temperature": tau, "margin": margin, "curvature": c, "clip": clip, "weight": 0.3}
    method = build_on("hier", base("proxy_anchor"), **OPTIONS, **changes)
    state, terms = step(method, labels=slots(sets))
    assert (terms["images"].weight, terms["ancestors"].weight) == (0.3, 0.3)
    generator = streams.create_generator(0, "loss")  # draws triplets, then two tables of noise
    near = similarities(state.query, sets, c, clip)
    own = similarities(method.ancestors, None, c, clip)
    for name, similarity, points in (
        ("images", near, state.query),
        ("ancestors", own, method.ancestors),
    ):
        triplets = draw_triplets(similarity, 4, DRAWS, generator)
        assert triplets.shape[1] >= 2 * DRAWS
        shape = (triplets.shape[1], H)
        noise = [torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
        expected = oracles.hierarchy(
            distances(points, method.ancestors, c, clip),
            [tuple(row) for row in triplets.T.tolist()],
            (noise[0], noise[1]),
            tau,
            margin,
        )
        assert expected.item() > 0
        compare(method, terms[name].value, expected, 1 if name == "ancestors" else 3)


def similarities(x: Tensor, sets: Any, c: float, clip: float) -> Tensor:
    rows = [[-oracles.geodesic(a, b, c, clip).item() for b in x] for a in x]
    table = torch.tensor(rows, dtype=torch.float64).exp()
    for i in range(len(x)):
        for j in range(len(x)):
            table[i, j] += sets is not None and bool(sets[i] & sets[j])
    return table


@pytest.mark.parametrize("classes", [None, [{i % 5} for i in range(14)]])
def test_triplets_are_of_mutual_neighbours_and_others(classes: Any) -> None:
    x = torch.randn(14, 3, generator=streams.create_generator(0, "x"), dtype=torch.float64)
    distance = torch.cdist(x, x).tolist()
    allowed = oracles.candidates(distance, classes, 5)
    similarity = (-torch.tensor(distance, dtype=torch.float64)).exp()
    for i in range(14):
        for j in range(14):
            similarity[i, j] += classes is not None and bool(classes[i] & classes[j])
    triplets = draw_triplets(similarity, 5, 300, streams.create_generator(0, "draws"))
    assert len(allowed) > 1 and triplets.shape == (3, 300 * len(allowed))
    drawn: dict[int, tuple[set[int], set[int]]] = {}
    for i, j, k in triplets.T.tolist():
        mutual, others = drawn.setdefault(i, (set(), set()))
        mutual.add(j)
        others.add(k)
    assert drawn == allowed  # 300 draws reach every candidate


@pytest.mark.parametrize("change", [lambda x: x[:2], lambda x: x[:1].expand(B, -1)])
def test_without_triplets_the_term_is_0(change: Callable[[Tensor], Tensor]) -> None:
    method = build_on("hier", base("proxy_anchor"), ancestors=8, draws=2, neighbours=7)
    x = change(torch.ones(B, 7, dtype=torch.float64))
    _, terms = step(method, features=x, labels=torch.zeros(len(x), 1, dtype=torch.int64))
    assert terms["images"].value.item() == 0 and terms["ancestors"].value.isfinite()
    assert method.observed()["anchors"].item() == 0


@pytest.mark.parametrize(
    ("options", "size", "said"),
    [
        ({"neighbours": 12}, 12, "not 12 of 12"),
        ({}, 4, "not 2 of 4"),
        ({"neighbours": 16, "ancestors": 16}, 128, "neighbours 16 must be below ancestors 16"),
    ],
)
def test_what_has_no_triplets_is_refused(options: dict[str, Any], size: int, said: str) -> None:
    training = {"training": {"batch_size": size, "per_class": 2}}
    try:
        reason = build_trial({"name": "hier", **options}, "proxy_anchor", **training)
    except ValueError as error:
        reason = str(error)
    assert isinstance(reason, str) and said in reason
