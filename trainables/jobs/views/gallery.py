"""Retrieval as one sees it: queries with the images that are found first.

Some queries are drawn, each of another class; the others are the hardest failures, those whose
nearest image of another class is ahead of the nearest of their own by most:

    max_{j: y_j ≠ y_i} s(i, j) − max_{j: y_j = y_i, j ≠ i} s(i, j)

among `LOOKED_AT` images at most. Draws depend on the split's size alone, so that two models are
shown on the same queries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainables import streams
from trainables.jobs.views.embedded import BLOCK, VIEWS, Embedded

LOOKED_AT = 2048  # queries among which failures are sought


@VIEWS.register("gallery")
@torch.inference_mode()
def gallery(split: Embedded, *, queries: int, failures: int, nearest: int) -> dict[str, Any]:
    """`rows`, each with `query`, a picture, its `class`, the `rank` of its first hit (from 1), and
    `near`: pictures with `class`, `hit` and `score`. `failures` of them come last, `failed`."""
    labels = split.labels
    order = torch.randperm(split.query_count, generator=streams.generator(0, "views.gallery"))
    order = order[:LOOKED_AT].to(labels.device)
    margins, known = [], []
    for block in torch.split(order, BLOCK):
        scores, hits = split.score_queries(block)
        right = scores.masked_fill(~hits, -torch.inf).amax(1)
        wrong = scores.masked_fill(hits, -torch.inf).amax(1)
        margins.append(wrong - right)
        known.append(hits.any(1) & scores.isfinite().any(1))
    margin, there = torch.cat(margins), torch.cat(known)
    usable = order[there]
    drawn = _of_other_classes(usable, labels, queries)
    worst = margin.masked_fill(~there, -torch.inf).argsort(descending=True, stable=True)
    failed = [int(place) for place in order[worst][: int((margin[there] > 0).sum())].tolist()]
    failed = [place for place in failed if place not in drawn][:failures]
    chosen = [(place, False) for place in drawn] + [(place, True) for place in failed]
    return {
        "rows": [_row(split, place, nearest, failed=lost) for place, lost in chosen],
        "looked_at": len(usable),
        "failing": int((margin[there] > 0).sum()),
    }


def _of_other_classes(places: Tensor, labels: Tensor, count: int) -> list[int]:
    """The first places, each of a class that none before is of while there are such."""
    seen: set[int] = set()
    fresh: list[int] = []
    others: list[int] = []
    for place in places.tolist():
        label = int(labels[place])
        (others if label in seen else fresh).append(place)
        seen.add(label)
    return (fresh + others)[:count]


def _row(split: Embedded, place: int, nearest: int, *, failed: bool) -> dict[str, Any]:
    first = split.gallery_start
    scores, hits = split.score_queries(torch.tensor([place], device=split.labels.device))
    order = scores[0].argsort(descending=True, stable=True)
    rank = int(hits[0][order].int().argmax()) + 1
    count = min(nearest, int(scores[0].isfinite().sum()))
    return {
        "query": split.picture(place),
        "class": split.name(place),
        "rank": rank,
        "failed": failed,
        "near": [
            {
                "picture": split.picture(found + first),
                "class": split.name(found + first),
                "hit": bool(hits[0, found]),
                "score": float(scores[0, found]),
            }
            for found in order[:count].tolist()
        ],
    }
