"""The two ways to places of positives against naive loops, and against each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import retrieval
from tests.trainables.evaluation.cases import CASES, quarters
from trainables.evaluation import counting, ranking
from trainables.evaluation.counting import count_places
from trainables.evaluation.metrics import (
    ALL,
    ClassMeans,
    evaluate_embeddings,
    needs_embeddings_alone,
)
from trainables.evaluation.ranking import sort_nearest
from trainables.evaluation.ranking_metrics import FAR, PositiveRanks
from trainables.evaluation.scores import PLAIN, Score
from trainables.words.errors import TrialFailure

DOT = PLAIN["dot"]
NAMES = {
    "recall_at_1": lambda s, y: retrieval.recall_at(s, y, 1),
    "recall_at_7": lambda s, y: retrieval.recall_at(s, y, 7),
    "recall_at_1000": lambda s, y: retrieval.recall_at(s, y, 1000),
    "r_precision": retrieval.r_precision,
    "map_at_r": retrieval.map_at_r,
    "map_at_1000": lambda s, y: retrieval.map_at(s, y, 1000, with_query=True),
    "map_at_1000_of_found": lambda s, y: retrieval.map_at(s, y, 1000, with_query=False),
    "map_at_100_of_found": lambda s, y: retrieval.map_at(s, y, 100, with_query=False),
    "map": lambda s, y: retrieval.map_at(s, y, len(y), with_query=False),
    "map_with_query": retrieval.map_with_query,
}


def similarity(x: torch.Tensor, kind: str) -> np.ndarray:
    x = x.double()
    found = x @ x.T if kind == "dot" else -(x[:, None] - x[None]).square().sum(-1)
    return found.numpy()


@pytest.fixture(params=["sorting", "counting"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way that `evaluate` takes; tiles so small that all their borders are met."""
    if request.param != "sorting":
        monkeypatch.setattr(ranking, "SMALL", 0)
    monkeypatch.setattr(ranking, "BLOCK", 17)
    monkeypatch.setattr(counting, "GROUP", 64)
    monkeypatch.setattr(counting, "WIDTH", 7)
    return str(request.param)


def by_loops(x: torch.Tensor, y: torch.Tensor, kind: str) -> dict[str, float]:
    s = similarity(x, kind)
    return {name: oracle(s, y.numpy()) for name, oracle in NAMES.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["dot", "euclidean"])
def test_equals_naive_loops(way: str, case: str, kind: str) -> None:
    x, y = CASES[case](torch.Generator().manual_seed(7))
    found = evaluate_embeddings(x, y, score=kind, metrics=tuple(NAMES))
    assert found == pytest.approx(by_loops(x, y, kind), abs=1e-12), way


@pytest.mark.parametrize("case", CASES)
def test_means_by_class_add_up_to_the_metric(way: str, case: str) -> None:
    x, y = CASES[case](torch.Generator().manual_seed(7))
    means: ClassMeans = {}
    metrics = ("recall_at_1", "map_at_r", "map_at_1000")
    whole = evaluate_embeddings(x, y, score="dot", metrics=metrics, class_means=means)
    assert [*means] == ["recall_at_1", "map_at_r"]
    labels = torch.unique(y)
    for name, pairs in means.items():
        total = sum(count for _, count in pairs)
        assert sum(mean * count for mean, count in pairs) / total == pytest.approx(
            whole[name], abs=1e-6
        )
        assert len(pairs) <= len(labels)  # the last ones may have no query that counts
    # each class of its own: the mean over its queries, by the loops
    s = similarity(x, "dot")
    np.fill_diagonal(s, -np.inf)
    order = np.argsort(-s, axis=1, kind="stable")
    hit = (y.numpy()[order[:, 0]] == y.numpy()).astype(float)
    for label, (mean, count) in zip(labels, means["recall_at_1"], strict=True):
        is_class = (y == label).numpy()
        assert (count, mean) == (is_class.sum(), pytest.approx(hit[is_class].mean(), abs=1e-6))


def test_means_by_class_of_queries_in_a_gallery() -> None:
    x, y = torch.eye(4), torch.tensor([0, 1, 1, 3])
    gallery = torch.eye(4)[[0, 3, 2, 0]], torch.tensor([0, 1, 1, 2])
    means: ClassMeans = {}
    metrics = ("recall_at_1", "map_at_r")
    evaluate_embeddings(x, y, score="dot", metrics=metrics, gallery=gallery, class_means=means)
    assert means["recall_at_1"] == [[1.0, 1], [0.5, 2], [0.0, 0], [0.0, 1]]
    assert means["map_at_r"] == [[1.0, 1], [0.375, 2]], "a query without positives does not count"


@pytest.mark.parametrize("score", ["dot", lambda q, r: q @ r.T])
def test_threads_share_the_queries_and_change_nothing(
    score: Score | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(0)
    # More than 32 columns at once, and groups of many classes: the vectorised comparison.
    x, y = quarters(1500, 4, g), torch.randint(300, (1500,), generator=g)
    monkeypatch.setattr(counting, "GROUP", 300)
    monkeypatch.setattr(counting, "WIDTH", 512)
    sorted_way = evaluate_embeddings(x, y, score=score, metrics=tuple(NAMES))
    monkeypatch.setattr(ranking, "SMALL", 0)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found = evaluate_embeddings(x, y, score=score, metrics=tuple(NAMES))
            assert found == pytest.approx(sorted_way, abs=1e-12)
    finally:
        torch.set_num_threads(before)


def exact_places(s: np.ndarray, y: np.ndarray, q: int) -> list[int]:
    near = [item for item in np.lexsort((np.arange(len(y)), -s[q])) if item != q]
    return (np.flatnonzero(y[near] == y[q]) + 1).tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(2, 60), st.integers(1, 9))
def test_places_up_to_the_limit_are_exact(seed: int, limit: int, n: int, classes: int) -> None:
    g = torch.Generator().manual_seed(seed)
    x, y = quarters(n, 3, g, 5), torch.randint(classes, (n,), generator=g)
    s = similarity(x, "dot")

    def bound(positives: torch.Tensor) -> torch.Tensor:
        return torch.full_like(positives, limit)

    order = y.argsort(stable=True).tolist()
    of_counting = collect(count_places(x, y, DOT, bound), order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "BLOCK", 9)
        of_sorting = collect(sort_nearest(x, y, None, DOT, bound), range(n))
    for q in range(n):
        expected = [place for place in exact_places(s, y.numpy(), q) if place <= limit]
        assert of_counting[q] == of_sorting[q] == expected


def collect(blocks: Iterator[PositiveRanks], queries: object) -> dict[int, list[int]]:
    rows = [[p for p in row if p != FAR] for block in blocks for row in block.places.tolist()]
    return dict(zip(queries, rows, strict=True))  # type: ignore[call-overload]


def test_query_and_gallery(way: str) -> None:
    g = torch.Generator().manual_seed(2)
    q, r = quarters(40, 5, g), quarters(70, 5, g)
    ql, rl = torch.randint(9, (40,), generator=g), torch.randint(8, (70,), generator=g)
    ql[0] = 8  # no item of this class in the gallery
    found = evaluate_embeddings(
        q, ql, score="dot", metrics=("recall_at_3", "map_at_r", "map_at_1000"), gallery=(r, rl)
    )
    s, hits, maps, of_all = (q.double() @ r.double().T).numpy(), [], [], []
    for i in range(40):
        relevant = (rl == ql[i]).numpy()[np.lexsort((np.arange(70), -s[i]))]
        hits.append(relevant[:3].any())
        if (size := relevant.sum()) > 0:
            precision = np.cumsum(relevant) / np.arange(1, 71)
            maps.append((precision * relevant)[:size].sum() / size)
            of_all.append((precision * relevant).sum() / (size + 1))
    expected = {"recall_at_3": np.mean(hits), "map_at_r": np.mean(maps)}
    assert found == pytest.approx(expected | {"map_at_1000": np.mean(of_all)}, abs=1e-12)


def test_a_query_may_have_several_classes(way: str) -> None:
    g = torch.Generator().manual_seed(3)
    q, r = quarters(40, 5, g), quarters(70, 5, g)
    ql, rl = 10 * torch.randint(9, (40,), generator=g), 10 * torch.randint(8, (70,), generator=g)
    pairs = {(i, 10 * int(y)) for i in range(0, 40, 3) for y in torch.randint(8, (2,), generator=g)}
    further = torch.tensor(sorted(pair for pair in pairs if pair[1] != ql[pair[0]]))
    further = further[torch.isin(further[:, 1], rl)]
    names = ("recall_at_1", "r_precision", "map_at_100_of_found", "map")
    found = evaluate_embeddings(q, ql, score="dot", metrics=names, gallery=(r, rl), further=further)
    s, values = (q.double() @ r.double().T).numpy(), []
    for i in range(40):
        classes = torch.tensor([int(ql[i]), *(int(y) for at, y in further if at == i)])
        hits = torch.isin(rl, classes).numpy()[np.lexsort((np.arange(70), -s[i]))]
        size = hits.sum()
        mean = (np.cumsum(hits) / np.arange(1, 71) * hits).sum() / max(1, size)
        values.append((hits[0], *((hits[:size].mean(), mean, mean) if size else 3 * (np.nan,))))
    assert found == pytest.approx(dict(zip(names, np.nanmean(values, 0), strict=True)), abs=1e-12)
    absent = torch.tensor([[0, 5]])  # labels are multiples of 10
    with pytest.raises(ValueError, match="label 5"):
        evaluate_embeddings(q, ql, score="dot", metrics=names, gallery=(r, rl), further=absent)


def test_a_methods_own_score_need_not_be_symmetric(way: str) -> None:
    g = torch.Generator().manual_seed(1)
    x, y = quarters(60, 4, g), torch.randint(7, (60,), generator=g)

    def own(q: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        # IDML's test score weakens a product by the reference's own uncertainty.
        return q[:, :3] @ r[:, :3].T - r[None, :, 3].abs()

    s = own(x.double(), x.double()).numpy()
    found = evaluate_embeddings(x, y, score=own, metrics=tuple(NAMES))
    expected = {name: oracle(s, y.numpy()) for name, oracle in NAMES.items()}
    assert found == pytest.approx(expected, abs=1e-12)


def test_scores_that_are_not_numbers_are_an_error(way: str) -> None:
    x, y = CASES["random"](torch.Generator().manual_seed(0))

    def broken(q: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(len(r)) == 59, torch.nan, q @ r.T)

    with pytest.raises(TrialFailure, match="not a number"):
        evaluate_embeddings(x, y, score=broken, metrics=("recall_at_1",))


@pytest.mark.parametrize("kind", ["dot", "euclidean"])
def test_scores_that_overflow_are_an_error(way: str, kind: str) -> None:
    x, y = CASES["random"](torch.Generator().manual_seed(0))
    with pytest.raises(TrialFailure, match="float32 overflows"):
        evaluate_embeddings(x * 1e20, y, score=kind, metrics=("recall_at_1",))


@pytest.mark.parametrize("dims", [64, 512])
def test_bitwise_duplicates_tie_in_real_products(dims: int) -> None:
    # Not exact products: copies must still score alike wherever they stand in a tile.
    g = torch.Generator().manual_seed(3)
    base = torch.nn.functional.normalize(torch.randn(500, dims, generator=g), dim=1)
    x = base.repeat(6, 1)
    y = torch.arange(500).repeat(6)
    y[500:1000] = torch.arange(500).flip(0)  # a copy of another class, before those of its own
    found = evaluate_embeddings(x, y, score="cosine", metrics=("recall_at_1", "map_at_r"))
    exact = (x.double() @ x.double().T).numpy()
    # Copies of one vector get one score each: that of their first copy.
    first = np.tile(np.arange(500), 6)
    exact = exact[first][:, first]
    labels = y.numpy()
    hits = [1 in exact_places(exact, labels, q) for q in range(0, 3000, 7)]
    blocks = count_places(x, y, PLAIN["cosine"], lambda p: p.clamp(min=10))
    sampled = collect(blocks, y.argsort(stable=True).tolist())
    assert [1 in sampled[q] for q in range(0, 3000, 7)] == hits
    assert 0 < found["recall_at_1"] < 1


def test_python_without_numba_computes_all_metrics(tmp_path: Path) -> None:
    """All metrics of a set that numba would count; ranking needs no compiled code."""
    g = torch.Generator().manual_seed(0)
    x, y = quarters(2100, 8, g), torch.randint(150, (2100,), generator=g)
    torch.save((x, y), tmp_path / "set.pt")
    names = [name for name in ALL if needs_embeddings_alone(name)]
    code = (
        "import json, sys, torch\n"
        "sys.modules['numba'] = None  # as if it were not installed\n"
        "from trainables.evaluation.metrics import evaluate_embeddings\n"
        f"torch.set_num_threads({torch.get_num_threads()})  # sums depend on it\n"
        f"x, y = torch.load({str(tmp_path / 'set.pt')!r})\n"
        f"print(json.dumps(evaluate_embeddings(x, y, score='dot', metrics={names!r})))\n"
    )
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ranking.can_count(x, y), "with numba these items are counted"
    counted = evaluate_embeddings(x, y, score="dot", metrics=names)
    assert json.loads(answer.stdout) == pytest.approx(counted, rel=1e-12, abs=0)
