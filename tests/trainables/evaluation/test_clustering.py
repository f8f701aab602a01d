"""k-means, and the agreement of a clustering with classes against counts and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.oracles import retrieval, structure
from trainables.evaluation import clustering as kmeans_module
from trainables.evaluation.clustering import (
    ami,
    build_contingency,
    compute_objective,
    f1,
    kmeans,
    nmi,
)
from trainables.evaluation.metrics import evaluate_embeddings


def blobs(per_class: int, classes: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(4)
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.eye(max(classes, 8))[:classes]
    return centres[labels] + spread * torch.randn(
        len(labels), centres.shape[1], generator=g
    ), labels


def labellings(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    b = torch.randint(7, (50,), generator=g)
    # Imbalanced, of one item each, all one, and like the other by half.
    a = {
        0: torch.randint(2, (50,), generator=g) * 2**40,
        1: torch.arange(50) - 25,
        2: torch.cat([torch.zeros(40), torch.arange(10)]).long(),
        3: torch.zeros(50).long(),
        4: torch.where(torch.rand(50, generator=g) < 0.5, b, torch.randint(9, (50,), generator=g)),
    }
    return a[seed], b


@pytest.mark.parametrize("seed", range(5))
def test_agreement_equals_counts_and_scikit_learn(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    a, b = labellings(seed)
    for first, second in ((a, b), (b, a)):
        table, given = build_contingency(first, second), (second.numpy(), first.numpy())
        assert nmi(table) == pytest.approx(metrics.normalized_mutual_info_score(*given), abs=1e-12)
        assert nmi(table) == pytest.approx(
            retrieval.nmi(first.tolist(), second.tolist()), abs=1e-12
        )
        assert ami(table) == pytest.approx(metrics.adjusted_mutual_info_score(*given), abs=1e-9)
        pair = metrics.cluster.pair_confusion_matrix(*given)
        counted = 2 * pair[1, 1] / (2 * pair[1, 1] + pair[0, 1] + pair[1, 0])
        assert f1(table) == pytest.approx(counted, abs=1e-12)
        assert f1(table) == pytest.approx(structure.f1(first.tolist(), second.tolist()), abs=1e-12)


def test_agreement_at_its_ends() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    same, crossed = (
        build_contingency(labels, 5 - labels),
        build_contingency(labels, torch.tensor([0, 1, 0, 1])),
    )
    assert (nmi(same), ami(same), f1(same)) == pytest.approx((1, 1, 1))
    assert (nmi(crossed), f1(crossed)) == pytest.approx((0, 0), abs=1e-12)
    nothing, alone = torch.zeros(4).long(), torch.arange(4)
    assert nmi(build_contingency(nothing, labels)) == pytest.approx(0, abs=1e-12)
    for one in (build_contingency(nothing, nothing), build_contingency(alone, alone)):
        assert (nmi(one), ami(one), f1(one)) == pytest.approx((1, 1, 1))


def lloyd(rows: torch.Tensor, k: int, seed: int, iterations: int) -> list[int]:
    """Plainly, in float64; without the case of an empty cluster."""
    x = rows.double().numpy()
    start = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:k]
    middle = x[start.numpy()]
    for _ in range(iterations + 1):
        clusters = np.array([np.argmin(((row - middle) ** 2).sum(1)) for row in x])
        assert len(set(clusters)) == k
        middle = np.array([x[clusters == c].mean(0) for c in range(k)])
    return clusters.tolist()


@pytest.mark.parametrize("iterations", [0, 1, 3, 20])
def test_skipping_centres_that_stand_still_is_exactly_lloyd(iterations: int) -> None:
    rows, _ = blobs(12, 15, 0.3)
    found = kmeans(rows, 30, seed=2, iterations=iterations)
    assert found.tolist() == lloyd(rows, 30, 2, iterations)


def starts(rows: torch.Tensor, k: int, seed: int, restarts: int) -> list[np.ndarray]:
    """Centres that `kmeans` begins with, one start after the other."""
    g = torch.Generator().manual_seed(seed)
    return [rows[torch.randperm(len(rows), generator=g)[:k]].numpy() for _ in range(restarts)]


def test_the_least_spread_of_several_starts_is_taken() -> None:
    """Every start against scikit-learn's Lloyd from the same centres; the best of them is ours."""
    cluster = pytest.importorskip("sklearn.cluster")
    rows, _ = blobs(12, 15, 0.3)
    theirs = []
    for centres in starts(rows, 30, 2, 6):
        fitted = cluster.KMeans(30, init=centres, n_init=1, max_iter=1000, tol=0)
        clusters = torch.from_numpy(fitted.fit(rows.numpy()).labels_).long()
        theirs.append(naive_spread(rows, clusters))
    found = [kmeans(rows, 30, seed=2, iterations=1000, restarts=n) for n in (1, 2, 6)]
    spread = [naive_spread(rows, each) for each in found]
    assert spread == pytest.approx([theirs[0], min(theirs[:2]), min(theirs)], rel=1e-6)
    assert spread[0] > spread[2], "the first start is not the best here, or the test shows nothing"
    assert torch.equal(found[0], kmeans(rows, 30, seed=2, iterations=1000)), "one start: as before"
    assert compute_objective(rows, found[2], 30) == pytest.approx(spread[2], rel=1e-6)


def naive_spread(rows: torch.Tensor, clusters: torch.Tensor) -> float:
    x, of = rows.double().numpy(), clusters.numpy()
    return sum(((x[of == c] - x[of == c].mean(0)) ** 2).sum() for c in set(of.tolist()))


def test_empty_clusters_are_filled() -> None:
    rows = torch.cat([torch.zeros(30, 2), torch.tensor([[9.0, 0], [0, 9.0]])])
    # Starts among the 30 equal items lose all but one of them.
    found = kmeans(rows, 3, seed=0)
    assert len(torch.unique(found)) == 3


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = blobs(15, 6, 0.4)
    whole = kmeans(rows, 6, seed=2)
    monkeypatch.setattr(kmeans_module, "DISTANCE_BYTES", 4 * 6 * 7)
    assert torch.equal(kmeans(rows, 6, seed=2), whole)


@pytest.mark.parametrize(
    "labels", [torch.zeros(20).long(), torch.arange(20), torch.arange(20) // 4]
)
def test_clustering_of_equal_embeddings(labels: torch.Tensor) -> None:
    found = evaluate_embeddings(
        torch.ones(20, 3), labels, score="cosine", metrics=("nmi", "ami", "f1")
    )
    # Equal items are of one cluster, which tells nothing of the classes, unless there is one.
    tells = float(len(labels.unique()) == 1)
    assert (found["nmi"], found["ami"]) == pytest.approx((tells, tells), abs=1e-9)
