"""Metrics of a split: each image among all others, or its queries in its gallery."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from trainables.data.splits import Subset
from trainables.evaluation.metrics import evaluate
from trainables.evaluation.scores import Score


def of_split(
    embeddings: Tensor,
    subset: Subset,
    *,
    score: Score | str,
    metrics: Sequence[str],
    restarts: int | None = None,
) -> dict[str, float]:
    """`evaluate` of a whole split.

    Args:
        embeddings: [N, E] of its images, in its order.
        restarts: of k-means, as `evaluate` has them.

    Raises:
        ConfigError, TrialFailure: as `evaluate`.
    """
    cut, labels = subset.queries, subset.labels
    if cut is None:
        return evaluate(embeddings, labels, score=score, metrics=metrics, restarts=restarts)
    gallery = embeddings[cut:], labels[cut:]
    return evaluate(
        embeddings[:cut],
        labels[:cut],
        score=score,
        metrics=metrics,
        gallery=gallery,
        restarts=restarts,
    )
