"""Ranking metrics against naive loops and pytorch-metric-learning; protocol and errors."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import retrieval
from tests.trainables.evaluation.cases import CASES, quarters
from trainables.evaluation import ranking
from trainables.evaluation.metrics import evaluate_embeddings
from trainables.evaluation.ranking import EXCLUDED, build_order_keys, take_largest
from trainables.words.errors import ConfigError, TrialFailure
from trainables.words.metrics import PER_EPOCH


def dot(q: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return q @ r.T


def oracle(x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    similarity, labels = (x.double() @ x.double().T).numpy(), y.numpy()
    found = {f"recall_at_{k}": retrieval.recall_at(similarity, labels, k) for k in (1, 2, 4, 8)}
    found["r_precision"] = retrieval.r_precision(similarity, labels)
    found["map_at_r"] = retrieval.map_at_r(similarity, labels)
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_equals_naive_loops_on_any_small_set(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 14))
    numbers = data.draw(st.lists(st.integers(-2, 2), min_size=2 * n, max_size=2 * n))
    labels = data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    y = torch.tensor([*labels[:-1], labels[0]])  # at least one pair
    x = torch.tensor(numbers).view(n, 2).float()
    with mock.patch.object(ranking, "BLOCK", data.draw(st.integers(1, n))):
        found = evaluate_embeddings(x, y, score=dot, metrics=PER_EPOCH)
    assert found == pytest.approx(oracle(x, y), abs=1e-12)


@pytest.mark.parametrize("case", ["random", "imbalanced", "one-image classes"])
def test_equals_pytorch_metric_learning(case: str) -> None:
    calculator = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    g = torch.Generator().manual_seed(5)
    _, y = CASES[case](g)
    x = torch.nn.functional.normalize(torch.randn(len(y), 24, generator=g), dim=1)
    theirs = calculator.AccuracyCalculator(
        include=("r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        device=torch.device("cpu"),
    ).get_accuracy(x, y)
    ours = evaluate_embeddings(x, y, score=dot, metrics=("r_precision", "map_at_r"))
    assert ours["r_precision"] == pytest.approx(theirs["r_precision"], abs=1e-6)
    assert ours["map_at_r"] == pytest.approx(theirs["mean_average_precision_at_r"], abs=1e-6)


def test_keys_sort_by_score_then_first_index() -> None:
    scores = torch.tensor([[0.0, -0.0, 1e-45, -1e-45, 3.5, -3.5, 3.5, float("inf"), -3.5]])
    keys = build_order_keys(scores, torch.arange(8, -1, -1))
    assert keys.argsort(descending=True)[0].tolist() == [7, 4, 6, 2, 0, 1, 3, 5, 8]


def test_bad_requests_are_one_line() -> None:
    x, y = CASES["random"](torch.Generator().manual_seed(0))
    with pytest.raises(ConfigError, match="recall_at_1001"):
        evaluate_embeddings(x, y, score=dot, metrics=("recall_at_1001",))
    with pytest.raises(ConfigError, match="59 labels"):
        evaluate_embeddings(x, y[:-1], score=dot)
    with pytest.raises(ConfigError, match="one image each"):
        evaluate_embeddings(x, torch.arange(60), score=dot, metrics=("map_at_r",))


@pytest.mark.parametrize("depth", [1, 3, 49, 50])
def test_the_largest_are_those_of_topk(depth: int) -> None:
    scores = quarters(40, 50, torch.Generator().manual_seed(1))
    scores[0], scores[1, :9] = 0.0, -0.0
    keys = build_order_keys(scores, torch.arange(49, -1, -1))
    keys[:, 7] = EXCLUDED
    expected = keys.topk(depth, dim=1).values
    found = take_largest(keys.clone(), depth)
    assert found.is_contiguous()
    assert torch.equal(found, expected)


def test_infinite_scores_are_numbers_and_scores_stay_as_they_are() -> None:
    """Their sum is none, so each is looked at."""
    scores = torch.tensor([[np.inf, -np.inf, -0.0, 0.0]])
    keys = build_order_keys(scores, torch.arange(3, -1, -1))
    assert keys.argsort(1, descending=True).tolist() == [[0, 2, 3, 1]]
    assert scores.tolist() == [[np.inf, -np.inf, -0.0, 0.0]]
    with pytest.raises(TrialFailure, match="not a number"):
        build_order_keys(torch.tensor([[0.0, np.nan]]), torch.tensor([1, 0]))
