"""Which of three ways finds the places of positives; all give the same, by measurement one is
quickest. On a GPU and for small sets, sorting the nearest; on a CPU, counting; half of the
products where every item queries all others by a plain score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainables.evaluation.neighbours import neighbours
from trainables.evaluation.places import Places
from trainables.evaluation.ranking_metrics import RankingMetric
from trainables.evaluation.rowwise import counted_places
from trainables.evaluation.scores import PlainScore, Score
from trainables.evaluation.symmetric import fits, symmetric_places

SMALL = 2048  # items up to which loading the compiled code costs more than it saves


def places(
    rows: Tensor,
    labels: Tensor,
    cut: int | None,
    score: Score,
    metrics: Sequence[RankingMetric],
    *,
    block: int | None = None,
) -> Iterator[Places]:
    """Places of the positives of every query, as far as `metrics` look.

    Args:
        rows: [N, E]. labels: [N] int64, 0 ≤ label < N.
        cut: rows[:cut] are queries and rows[cut:] the gallery; None: all query all others.
    """

    def limit(positives: Tensor) -> Tensor:
        depths = torch.stack([metric.depth(positives) for metric in metrics])
        return depths.amax(0).clamp(min=1)

    large = rows.device.type == "cpu" and len(rows) - (cut or 0) > SMALL
    if large and cut is None and isinstance(score, PlainScore) and fits(labels):
        return symmetric_places(rows, labels, score, limit)
    if isinstance(score, PlainScore):  # brought to unit length once, not in every block
        rows, score = score.prepare(rows), PlainScore(score.kind)
    queries, references = (rows, rows) if cut is None else (rows[:cut], rows[cut:])
    of_queries, of_references = (labels, labels) if cut is None else (labels[:cut], labels[cut:])
    itself = torch.arange(len(rows), device=rows.device) if cut is None else None
    if not large:
        most = torch.bincount(of_references).max() - int(cut is None)
        return neighbours(
            queries,
            of_queries,
            references,
            of_references,
            score=score,
            depth=int(limit(most[None])),
            self_index=itself,
            block=block,
        )
    return counted_places(
        queries,
        of_queries,
        references,
        of_references,
        score=score,
        limit=limit,
        self_index=itself,
        block=block,
    )
