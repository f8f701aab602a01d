"""Places of positives by counting whole rows of scores: any score, query and gallery, on the CPU.

References are sorted by class, so a query's positives are a run of columns. Memory is that of one
block of queries. `symmetric.py` does half the work where the score allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from trainables.errors import TrialFailure
from trainables.evaluation.places import FAR, Places
from trainables.evaluation.scores import Score
from trainables.evaluation.symmetric import Shared

BLOCK_BYTES = 128 * 2**20  # scores and positives of a block; `score` may take some times as much


def counted_places(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    score: Score,
    limit: Callable[[Tensor], Tensor],
    self_index: Tensor | None = None,
    block: int | None = None,
) -> Iterator[Places]:
    """As `ranks.neighbours`; limit: positives [B] → the last place of interest [B].

    Raises:
        TrialFailure: a score is not a number.
    """
    from trainables.evaluation import counting

    size = len(references)
    most = int(torch.bincount(reference_labels).max())
    block = block or max(1, min(1024, BLOCK_BYTES // (4 * size + 24 * most)))
    order = reference_labels.argsort(stable=True)
    column = torch.empty_like(order)
    column[order] = torch.arange(size)
    rows, item = references[order], order.numpy()
    classes = int(torch.maximum(query_labels.max(), reference_labels.max())) + 1
    members = torch.bincount(reference_labels, minlength=classes)
    ends = members.cumsum(0)
    with Shared() as shared:
        for first in range(0, len(queries), block):
            here = slice(first, first + block)
            labels = query_labels[here]
            count = len(labels)
            made = score(queries[here], rows).float().contiguous().numpy()
            bits, positives = made.view(np.int32), members[labels]
            own = torch.full((count,), -1)
            if self_index is not None:
                own = column[self_index[here]]
                positives = positives - (reference_labels[self_index[here]] == labels).long()
            span = torch.stack([ends[labels] - members[labels], ends[labels]], 1)
            start = (positives.cumsum(0) - positives).numpy()
            total, bound = int(positives.sum()), limit(positives).numpy()
            keys, scores = np.empty(total, np.int64), np.empty(total, np.float32)
            counts = np.zeros(total, np.int32)
            active, floor = np.zeros(count, np.int64), np.empty(count, np.float32)
            shared(
                counting.positives,
                made,
                bits,
                item,
                own.numpy(),
                span.numpy(),
                keys,
                scores,
                start,
                active,
                floor,
                n=count,
            )
            bad = shared(
                counting.count_rows,
                made,
                bits,
                item,
                own.numpy(),
                keys,
                scores,
                counts,
                start,
                active,
                floor,
                bound,
                n=count,
            )
            if sum(bad) or np.isnan(scores).any():
                raise TrialFailure("evaluation: a similarity score is not a number")
            places = np.empty((count, int(positives.max())), np.int64)
            counting.fill_places(counts, start, active, bound, places, FAR)
            yield Places(torch.from_numpy(places), positives)
