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

from trainables.jobs.views.embedded import BLOCK, VIEWS, Embedded, draw

LOOKED_AT = 2048  # queries among which failures are sought


@VIEWS.register("gallery")
@torch.inference_mode()
def gallery(split: Embedded, *, queries: int, failures: int, nearest: int) -> dict[str, Any]:
    """Return `rows`, each with `query`, a picture, its `class`, the `rank` of its first hit (from
    1), and `near`: pictures with `class`, `hit` and `score`. `failures` of them come last,
    `failed`."""
    order = draw(split.query_count, "gallery")[:LOOKED_AT].to(split.device)
    margins, answerable = [], []
    for block in torch.split(order, BLOCK):
        scores, hits = split.score_queries(block)
        right = scores.masked_fill(~hits, -torch.inf).amax(1)
        wrong = scores.masked_fill(hits, -torch.inf).amax(1)
        margins.append(wrong - right)
        answerable.append(hits.any(1) & scores.isfinite().any(1))
    margin, usable = torch.cat(margins), torch.cat(answerable)
    # the first query of each class comes before all others
    by_class: dict[int, list[int]] = {}
    for position in order[usable].tolist():
        by_class.setdefault(int(split.subset.labels[position]), []).append(position)
    firsts = [positions[0] for positions in by_class.values()]
    others = [position for position in order[usable].tolist() if position not in firsts]
    drawn = (firsts + others)[:queries]
    failing = int((margin[usable] > 0).sum())
    worst = margin.masked_fill(~usable, -torch.inf).argsort(descending=True, stable=True)
    failed = [position for position in order[worst][:failing].tolist() if position not in drawn][
        :failures
    ]
    return {
        "rows": [_show_query(split, position, nearest, failed=False) for position in drawn]
        + [_show_query(split, position, nearest, failed=True) for position in failed],
        "looked_at": int(usable.sum()),
        "failing": failing,
    }


def _show_query(split: Embedded, position: int, nearest: int, *, failed: bool) -> dict[str, Any]:
    scores, hits = (
        values[0] for values in split.score_queries(torch.tensor([position]).to(split.device))
    )
    order = scores.argsort(descending=True, stable=True)
    count = min(nearest, int(scores.isfinite().sum()))
    query = split.show(position, rank=int(hits[order].int().argmax()) + 1, failed=failed)
    near = [
        split.show(n + split.gallery_start, hit=bool(hits[n]), score=float(scores[n]))
        for n in order[:count].tolist()
    ]
    return {"query": query.pop("picture"), **query, "near": near}
