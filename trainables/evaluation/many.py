"""Ranking metrics of many embeddings of one split at once: S trials whose images are the same.

For small sets on a GPU, where each of some thirty operations costs as much for one trial as for
many. Values are those of `evaluate`, and of each they are the same whatever the others are.

Shape legend: S trials · N images · E embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from trainables.data.splits import Subset
from trainables.evaluation.metrics import ranking_metric
from trainables.evaluation.ranking import (
    BLOCK_BYTES,
    BYTES_PER_PAIR,
    EXCLUDED,
    find_relevant,
    order_keys,
    take_largest,
)
from trainables.evaluation.ranking_metrics import RankingMetric
from trainables.evaluation.scores import PlainScore, Score
from trainables.evaluation.tasks import Retrieval, Task


def ranked_at_once(score: Score, task: Task, subset: Subset) -> TypeGuard[PlainScore]:
    """Whether `rank_many` can be asked: plain scores of a split that queries itself, and all pairs
    of it fit in a block."""
    plain = isinstance(task, Retrieval) and isinstance(score, PlainScore)
    return plain and subset.queries is None and BYTES_PER_PAIR * len(subset) ** 2 <= BLOCK_BYTES


@torch.no_grad()
def rank_many(
    embeddings: Tensor, labels: Tensor, score: PlainScore, metrics: Sequence[str]
) -> list[dict[str, float] | None]:
    """Metrics of each; None where one is not finite, or a metric is not defined: `evaluate` says
    of it what there is to say.

    Args:
        embeddings: [S, N, E]. labels: [N], on their device.
        metrics: ranking ones.
    """
    wanted = {name: ranking_metric(name) for name in metrics}
    known = {name: metric for name, metric in wanted.items() if metric is not None}
    if len(known) < len(wanted):
        raise ValueError(f"{sorted(wanted.keys() - known.keys())} do not rank")
    size = embeddings.shape[1]
    at_once = max(1, BLOCK_BYTES // (BYTES_PER_PAIR * size * size))
    codes = torch.unique(labels, return_inverse=True)[1]
    rows = score.prepare(embeddings.flatten(0, 1)).view_as(embeddings)
    fine = (4 * torch.linalg.vecdot(rows, rows)).isfinite().all(1).tolist()
    found: list[dict[str, float] | None] = []
    for part in torch.split(rows, at_once):
        found += _ranked(part, codes, score, known)
    return [each if ok else None for each, ok in zip(found, fine, strict=True)]


def _ranked(
    rows: Tensor, labels: Tensor, score: PlainScore, metrics: dict[str, RankingMetric]
) -> list[dict[str, float] | None]:
    count, size = rows.shape[:2]
    made = torch.bmm(rows, rows.mT)
    if score.kind == "euclidean":
        squares = torch.linalg.vecdot(rows, rows)
        made.mul_(2).sub_(squares[:, :, None]).sub_(squares[:, None]).clamp_(max=0)
    positives = torch.bincount(labels)[labels] - 1
    limits = torch.stack([metric.depth(positives) for metric in metrics.values()])
    depth = min(int(limits.amax().clamp(min=1)), size)
    later = torch.arange(size - 1, -1, -1, device=rows.device)
    keys = order_keys(torch.nan_to_num(made).flatten(0, 1), later)
    itself = torch.arange(size, device=rows.device).repeat(count)
    keys.scatter_(1, itself[:, None], EXCLUDED)
    nearest = take_largest(keys, depth)
    near = labels[size - 1 - (nearest & 0xFFFFFFFF).clamp(max=size - 1)]
    relevant = (near == labels.repeat(count)[:, None]) & (nearest != EXCLUDED)
    most = min(int(positives.max()), depth)  # as many columns, whoever is among them
    places = find_relevant(relevant, positives.repeat(count), most)
    columns: dict[str, tuple[list[float], list[int]]] = {}
    for name, metric in metrics.items():
        value, counts = metric(places)
        totals = torch.where(counts, value, 0.0).view(count, size).sum(1)
        columns[name] = totals.tolist(), counts.view(count, size).sum(1).tolist()
    return [
        {name: total[at] / queries[at] for name, (total, queries) in columns.items()}
        if all(queries[at] for _, queries in columns.values())
        else None
        for at in range(count)
    ]
