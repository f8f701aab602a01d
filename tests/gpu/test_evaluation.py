"""Metrics of rows on the device: those of the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.trainables.evaluation.cases import CASES
from trainables import streams
from trainables.evaluation.metrics import (
    ACCURACY,
    CLUSTERING,
    RANKING,
    STRUCTURE,
    evaluate_embeddings,
)
from trainables.words.errors import ConfigError
from trainables.words.metrics import AT_END

# Rows of unit length are not exact, so that ties of cosines fall as they round.
PAIRS = [("random", "cosine"), *((case, score) for case in CASES for score in ("dot", "euclidean"))]
CLOSE = 1e-4  # of float32: sums over rows; clusters that are far apart are told alike


@pytest.mark.parametrize(("case", "score"), PAIRS)
def test_ranking(case: str, score: str, device: torch.device) -> None:
    """Products are exact in float32, so that ties are ties anywhere."""
    rows, labels = CASES[case](streams.create_generator(0, case))
    options = {"score": score, "metrics": tuple(RANKING)}
    try:
        expected = evaluate_embeddings(rows, labels, **options)  # type: ignore[arg-type]
    except ConfigError as refused:
        with pytest.raises(ConfigError, match=refused.message):
            evaluate_embeddings(rows.to(device), labels, **options)  # type: ignore[arg-type]
        return
    assert evaluate_embeddings(rows.to(device), labels, **options) == pytest.approx(
        expected, abs=1e-12
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("gallery", [False, True])
def test_a_larger_set(gallery: bool, device: torch.device) -> None:
    """Beyond the size at which the CPU counts in place of sorting."""
    generator = streams.create_generator(0, "large")
    labels = torch.randint(40, (3000,), generator=generator)
    centres = torch.randn(40, 16, generator=generator)
    rows = centres[labels] + 0.9 * torch.randn(3000, 16, generator=generator)
    queries, options = (600, {}) if gallery else (3000, {})
    expected, results = (
        evaluate_embeddings(
            rows[:queries].to(where),
            labels[:queries],
            score="cosine",
            metrics=AT_END[: -len(CLUSTERING)],
            gallery=(rows[600:].to(where), labels[600:]) if gallery else None,
            **options,
        )
        for where in ("cpu", device)
    )
    assert results == pytest.approx(expected, abs=1e-3), "neighbours that are as near change places"


def test_structure_clusters_and_accuracies(device: torch.device) -> None:
    generator = streams.create_generator(0, "structure")
    labels = torch.arange(60) % 6
    rows = torch.eye(6)[labels] + 0.05 * torch.randn(60, 6, generator=generator)
    logits = torch.randn(60, 6, generator=generator)
    names = (*STRUCTURE, *CLUSTERING, *ACCURACY)
    expected, results = (
        evaluate_embeddings(
            rows.to(w), labels.to(w), score="dot", metrics=names, logits=logits.to(w)
        )
        for w in ("cpu", device)
    )
    assert results == pytest.approx(expected, rel=CLOSE, abs=CLOSE)
