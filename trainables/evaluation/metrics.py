"""`evaluate`: embeddings, labels and a score to named metrics.

Definitions: Recall@k, R-Precision and MAP@R in `ranking.py`, NMI in `clustering.py`. A new
ranking metric is a class there and a line in `RANKING`; one that reads embeddings is a function
and a line in `OF_EMBEDDINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from trainables.errors import ConfigError, TrialFailure
from trainables.evaluation.clustering import nmi
from trainables.evaluation.ranking import MapAtR, RankingMetric, RecallAt, RPrecision
from trainables.evaluation.ranks import Score, neighbours

EVALUATOR = "retrieval-1"  # raise when any value could change: evaluations are kept under it

RANKING: Mapping[str, RankingMetric] = {
    "recall_at_1": RecallAt(1),
    "recall_at_2": RecallAt(2),
    "recall_at_4": RecallAt(4),
    "recall_at_8": RecallAt(8),
    "r_precision": RPrecision(),
    "map_at_r": MapAtR(),
}
OF_EMBEDDINGS: Mapping[str, Callable[..., float]] = {"nmi": nmi}
METRICS: tuple[str, ...] = (*RANKING, *OF_EMBEDDINGS)
PER_EPOCH: tuple[str, ...] = tuple(RANKING)


@torch.no_grad()
def evaluate(
    embeddings: Tensor,
    labels: Tensor,
    *,
    score: Score,
    metrics: Sequence[str] = METRICS,
    block: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Retrieval metrics of a split, each item querying all others; values in [0, 1].

    Args:
        embeddings: [N, E] on any device.
        labels: [N] int64.
        score: (q[B, E], r[R, E]) → [B, R], larger is closer.
        metrics: names of `METRICS`; NMI costs a k-means, the others share one pass.
        block: queries at a time (None: by memory); changes no value.
        seed: of k-means.

    Raises:
        ConfigError: an unknown metric, or no class with two images where one is needed.
        TrialFailure: embeddings or scores that are not finite numbers.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise ConfigError("metrics", repr(unknown[0]), f"one of {', '.join(METRICS)}")
    if len(embeddings) != len(labels) or len(labels) == 0:
        raise ConfigError(
            "embeddings", f"{len(embeddings)} rows and {len(labels)} labels", "as many, and some"
        )
    bad = int((~torch.isfinite(embeddings)).any(1).sum())
    if bad:
        raise TrialFailure(
            f"evaluation: {bad} of {len(embeddings)} embeddings hold NaN or infinity"
        )
    labels = labels.to(embeddings.device)
    values = _ranking(embeddings, labels, score, metrics, block)
    for name in metrics:
        if name in OF_EMBEDDINGS:
            values[name] = OF_EMBEDDINGS[name](embeddings, labels, seed=seed)
    return {name: values[name] for name in metrics}


def _ranking(
    embeddings: Tensor, labels: Tensor, score: Score, metrics: Sequence[str], block: int | None
) -> dict[str, float]:
    wanted = {name: RANKING[name] for name in metrics if name in RANKING}
    if not wanted:
        return {}
    most = int(torch.bincount(labels).max()) - 1
    depth = max(1, *(metric.depth(most) for metric in wanted.values()))
    total = dict.fromkeys(wanted, 0.0)
    count = dict.fromkeys(wanted, 0)
    itself = torch.arange(len(labels), device=labels.device)
    for near in neighbours(
        embeddings,
        labels,
        embeddings,
        labels,
        score=score,
        depth=depth,
        self_index=itself,
        block=block,
    ):
        for name, metric in wanted.items():
            value, counts = metric(near)
            total[name] += float(value[counts].sum())
            count[name] += int(counts.sum())
    for name, queries in count.items():
        if queries == 0:
            raise ConfigError(
                f"metrics.{name}",
                "a split whose classes have one image each",
                "at least one class with two images",
            )
    return {name: total[name] / count[name] for name in wanted}
