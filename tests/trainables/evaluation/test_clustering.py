"""NMI against scikit-learn and counts; both k-means paths."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.oracles import retrieval
from trainables.evaluation import clustering
from trainables.evaluation.clustering import kmeans_faiss, kmeans_torch, mutual_information, nmi


def blobs(per_class: int, classes: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(4)
    labels = torch.arange(classes).repeat_interleave(per_class)
    centres = torch.eye(max(classes, 8))[:classes]
    return centres[labels] + spread * torch.randn(len(labels), 8, generator=g), labels


@pytest.mark.parametrize("seed", range(5))
def test_mutual_information_equals_counts_and_scikit_learn(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    g = torch.Generator().manual_seed(seed)
    a = torch.randint(2 + seed, (50,), generator=g) * 3
    b = torch.randint(7, (50,), generator=g)
    found = mutual_information(a, b)
    assert found == pytest.approx(retrieval.nmi(a.tolist(), b.tolist()), abs=1e-12)
    assert found == pytest.approx(metrics.normalized_mutual_info_score(a, b), abs=1e-12)


def test_mutual_information_at_its_ends() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    assert mutual_information(labels, 5 - labels) == pytest.approx(1)
    assert mutual_information(labels, torch.tensor([0, 1, 0, 1])) == pytest.approx(0, abs=1e-12)
    assert mutual_information(torch.zeros(4).long(), labels) == pytest.approx(0, abs=1e-12)
    assert mutual_information(torch.zeros(4).long(), torch.ones(4).long()) == 1


@pytest.mark.parametrize("kmeans", [kmeans_faiss, kmeans_torch])
def test_kmeans_is_deterministic_and_at_a_fixed_point(kmeans) -> None:
    if kmeans is kmeans_faiss:
        pytest.importorskip("faiss")
    rows, labels = blobs(20, 2, 0.1)
    first, again = kmeans(rows, 2, seed=1), kmeans(rows, 2, seed=1)
    assert torch.equal(first, again)
    assert mutual_information(first, labels) == pytest.approx(1)
    centres = torch.stack([rows[first == c].mean(0) for c in range(2)])
    assert torch.equal(torch.cdist(rows, centres).argmin(1), first)


def test_torch_path_fills_empty_clusters() -> None:
    rows = torch.cat([torch.zeros(30, 2), torch.tensor([[9.0, 0], [0, 9.0]])])
    # Starts among the 30 equal items lose all but one of them.
    found = kmeans_torch(rows, 3, seed=0)
    assert len(torch.unique(found)) == 3


def test_torch_path_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = blobs(15, 6, 0.4)
    whole = kmeans_torch(rows, 6, seed=2)
    monkeypatch.setattr(clustering, "DISTANCE_BYTES", 4 * 6 * 7)
    assert torch.equal(kmeans_torch(rows, 6, seed=2), whole)


@pytest.mark.parametrize("faiss", [True, False])
def test_nmi_of_separated_classes(monkeypatch: pytest.MonkeyPatch, faiss: bool) -> None:
    if faiss:
        pytest.importorskip("faiss")
    else:
        monkeypatch.setattr(clustering, "_faiss_imports", lambda: False)
    rows, labels = blobs(30, 3, 0.05)
    # Length must not matter: rows are brought to unit length.
    stretched = rows * torch.linspace(0.1, 10, len(rows))[:, None]
    assert max(nmi(stretched, labels, seed=s) for s in range(5)) == pytest.approx(1)


def test_evaluation_imports_and_runs_without_faiss() -> None:
    code = (
        "import sys; sys.modules['faiss'] = None\n"
        "import torch; from trainables.evaluation import evaluate\n"
        "x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))\n"
        "print(evaluate(x, torch.arange(20) // 4, score=lambda q, r: q @ r.T)['nmi'])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0 <= float(done.stdout) <= 1
