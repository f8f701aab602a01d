"""Show retrieval by examples: queries with the images that are found first.

Some queries are drawn, each of another class. The others are the hardest failures, for which the
nearest image of another class is furthest ahead of the nearest of their own:

    max_{j: y_j ≠ y_i} s(i, j) − max_{j: y_j = y_i, j ≠ i} s(i, j)

among `MOST_QUERIES` queries. Draws depend on the split's size alone, so two models are shown on the
same queries.
"""

from typing import Any

import torch

from trainables.jobs.views.embedded import BLOCK, VIEWS, Embedded, draw

MOST_QUERIES = 2048  # among which failures are sought


@VIEWS.register("gallery")
@torch.inference_mode()
def gallery(split: Embedded, *, queries: int, failures: int, nearest: int) -> dict[str, Any]:
    """Return `rows` of a picture gallery: drawn queries, then up to `failures` failures.

    A row has the picture `query`, its `class`, the `rank` of its first hit (an image of its class,
    from 1), and `near`: the nearest pictures with `class`, `hit` and `score`. `looked_at` counts
    the queries with an answer, `failing` those of them whose nearest image is no hit.
    """
    # compute each query's margin, positive for a failure, and whether its class is in the gallery
    order = draw(split.query_count, "gallery")[:MOST_QUERIES].to(split.device)
    margins, answerable = [], []
    for block in torch.split(order, BLOCK):
        scores, hits = split.score_queries(block)
        nearest_right = scores.masked_fill(~hits, -torch.inf).amax(1)
        nearest_wrong = scores.masked_fill(hits, -torch.inf).amax(1)
        margins.append(nearest_wrong - nearest_right)
        answerable.append(hits.any(1) & scores.isfinite().any(1))  # not all NaN
    usable = torch.cat(answerable)
    order, margin = order[usable], torch.cat(margins)[usable]

    # draw queries: the first one of each class, then the others
    firsts = [positions[0] for positions in split.group_by_class(order)]
    others = [position for position in order.tolist() if position not in firsts]
    drawn = (firsts + others)[:queries]

    # add the hardest failures
    n_failing = int((margin > 0).sum())
    hardest = order[margin.argsort(descending=True, stable=True)][:n_failing].tolist()
    failed = [position for position in hardest if position not in drawn][:failures]
    rows = [_build_query_row(split, position, nearest, failed=False) for position in drawn]
    rows += [_build_query_row(split, position, nearest, failed=True) for position in failed]
    return {"rows": rows, "looked_at": len(order), "failing": n_failing}


def _build_query_row(
    split: Embedded, position: int, nearest: int, *, failed: bool
) -> dict[str, Any]:
    """Return a query's row of the gallery: its picture, class, rank, and nearest images."""
    scores, hits = split.score_queries(torch.tensor([position], device=split.device))
    scores, hits = scores[0], hits[0]
    order = scores.argsort(descending=True, stable=True)
    count = min(nearest, int(scores.isfinite().sum()))
    rank = int(hits[order].int().argmax()) + 1  # of the first image of the query's class
    near = [
        split.describe_image(n + split.gallery_start, hit=bool(hits[n]), score=float(scores[n]))
        for n in order[:count].tolist()
    ]
    query = split.describe_image(position, rank=rank, failed=failed)
    return {"query": query.pop("picture"), **query, "near": near}
