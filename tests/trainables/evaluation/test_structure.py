"""Structural metrics and accuracies against loops, scipy and scikit-learn; what is an error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.oracles import structure as oracle
from trainables.evaluation import structure
from trainables.evaluation.metrics import ALL, STRUCTURE, evaluate_embeddings
from trainables.evaluation.structure import kolmogorov_survival
from trainables.words.errors import ConfigError, TrialFailure

SETS = {
    "random": lambda g: (torch.randn(50, 6, generator=g), torch.randint(7, (50,), generator=g)),
    "duplicates": lambda g: (
        torch.randn(20, 5, generator=g).repeat(3, 1),
        torch.randint(9, (60,), generator=g),
    ),
    "imbalanced": lambda g: (
        torch.randn(45, 4, generator=g),
        torch.cat([torch.zeros(35), torch.arange(10) // 3 + 1]).long(),
    ),
    "one-image classes": lambda g: (
        torch.randn(40, 8, generator=g),
        torch.cat([torch.arange(20), torch.arange(20) // 4 + 20]),
    ),
    "few items": lambda g: (torch.randn(9, 12, generator=g), torch.arange(9) // 3),
}


@pytest.mark.parametrize("case", SETS)
def test_equals_naive_loops(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "BLOCK", 4)  # blocks smaller than classes
    x, y = SETS[case](torch.Generator().manual_seed(1))
    found = evaluate_embeddings(x, y * 2**40, score="cosine", metrics=tuple(STRUCTURE))
    rows, labels = x.numpy(), y.tolist()
    p = oracle.gaussian_p(rows, labels)
    expected = {
        "density": oracle.density(rows, labels),
        "density_code": oracle.density_code(rows, labels),
        "concentration": oracle.concentration(rows, labels),
        "spectrum": oracle.spectrum(rows),
        "uniformity": oracle.uniformity(rows),
        "gaussian_p": np.mean(p),
        "gaussian_p_deviation": np.std(p),
        "relative_deviation": oracle.relative_deviation(rows, labels),
    }
    # float32 rows; distances of duplicates come out at √1e-7 where they are 0.
    assert found == pytest.approx(expected, abs=3e-4 if case == "duplicates" else 1e-5)


def test_kolmogorov_and_the_test_equal_scipy() -> None:
    special, stats = pytest.importorskip("scipy.special"), pytest.importorskip("scipy.stats")
    x = torch.linspace(0, 3, 200).double()
    assert kolmogorov_survival(x).numpy() == pytest.approx(special.kolmogorov(x.numpy()), abs=1e-9)
    # Stephens' correction against the exact distribution.
    d = np.linspace(0.02, 0.9, 60)
    for n in (5, 20, 80):
        root = np.sqrt(n)
        found = kolmogorov_survival(torch.from_numpy((root + 0.12 + 0.11 / root) * d)).numpy()
        assert found == pytest.approx(stats.kstwo.sf(d, n), abs=0.02)


def test_equal_embeddings() -> None:
    x, y = torch.ones(12, 4), torch.arange(12) // 3
    found = evaluate_embeddings(
        x, y, score="cosine", metrics=("uniformity", "spectrum", "gaussian_p")
    )
    assert found["uniformity"] == pytest.approx(1, abs=1e-5)
    assert found["gaussian_p"] == 0
    assert 5 < found["spectrum"] < 100
    for name in ("density", "density_code", "concentration"):
        with pytest.raises(ConfigError, match="all 4 classes have the same centre"):
            evaluate_embeddings(x, y, score="cosine", metrics=(name,))


def test_what_is_not_defined_is_one_line() -> None:
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    for name in ("density", "density_code", "concentration"):
        with pytest.raises(ConfigError, match="1 class"):
            evaluate_embeddings(x, torch.zeros(12).long(), score="cosine", metrics=(name,))
    for name in ("density", "density_code", "concentration", "gaussian_p", "relative_deviation"):
        with pytest.raises(ConfigError, match="one image each"):
            evaluate_embeddings(x, torch.arange(12), score="cosine", metrics=(name,))
    with pytest.raises(ConfigError, match="logits"):
        evaluate_embeddings(x, torch.arange(12), score="cosine", metrics=("top_1_accuracy",))
    with pytest.raises(ConfigError, match="'manhattan'"):
        evaluate_embeddings(x, torch.arange(12), score="manhattan", metrics=("recall_at_1",))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_every_metric_refuses_what_is_not_finite(bad: float) -> None:
    x, y = torch.full((12, 4), 3e38), torch.arange(12) // 3
    found = evaluate_embeddings(x, torch.zeros(12), score="cosine", metrics=("recall_at_1",))
    assert found == {"recall_at_1": 1}, "a sum that overflows is of finite numbers"
    x[3, 1] = bad
    for name in ALL:
        with pytest.raises(TrialFailure, match="1 of 12 embeddings"):
            evaluate_embeddings(x, y, score="cosine", metrics=(name,), logits=x)


def test_accuracy_equals_scikit_learn_and_counts_ties_by_index() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    g = torch.Generator().manual_seed(2)
    logits, y = torch.randn(80, 9, generator=g), torch.randint(9, (80,), generator=g)
    names = ("top_1_accuracy", "top_5_accuracy")
    found = evaluate_embeddings(logits, y, score="dot", metrics=names, logits=logits)
    for k in (1, 5):
        expected = metrics.top_k_accuracy_score(y, logits, k=k, labels=np.arange(9))
        assert found[f"top_{k}_accuracy"] == pytest.approx(expected)
    tied = evaluate_embeddings(
        logits[:6], torch.arange(6), score="dot", metrics=names, logits=torch.zeros(6, 6)
    )
    assert tied == {"top_1_accuracy": pytest.approx(1 / 6), "top_5_accuracy": pytest.approx(5 / 6)}
    with pytest.raises(ConfigError, match="the logits have 9 columns"):
        evaluate_embeddings(logits, y + 1, score="dot", metrics=names, logits=logits)
    with pytest.raises(TrialFailure, match="logit"):
        evaluate_embeddings(logits, y, score="dot", metrics=names, logits=logits * torch.nan)
