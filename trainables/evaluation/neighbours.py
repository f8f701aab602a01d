"""Which of each query's nearest items are of its class, block by block.

Shape legend: B queries of a block · R references · E embedding · K depth.

The K nearest of every query in order, for blocks of queries, so that memory is B·R and never R·R.
The way for small sets and on GPUs; on a CPU, `rowwise.py` and `symmetric.py` count instead.

Order: similarity descending, then index ascending. Each score is packed with its index into one
int64 that sorts by exactly this rule, so ties need no second look: the float32's bits, made
monotone, above the inverted index.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trainables.errors import TrialFailure
from trainables.evaluation.places import Places, places_of
from trainables.evaluation.scores import Score

BLOCK = 256  # queries; measured best, or level with it, from 900 to 12,000 items on a CPU
BLOCK_BYTES = 512 * 2**20  # bounds a block of scores and keys where references are many
BYTES_PER_PAIR = 28
EXCLUDED = torch.iinfo(torch.int64).min


def neighbours(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    score: Score,
    depth: int,
    self_index: Tensor | None = None,
    block: int | None = None,
) -> Iterator[Places]:
    """Places of every query's positives among its K nearest references, in blocks of queries.

    Args:
        score: (q[B, E], r[R, E]) → [B, R], larger is closer; compared as float32.
        depth: K.
        self_index: [queries] the row of each query among the references, or None if queries
            and references are different items (query and gallery). By index: duplicates of a
            query stay.
        block: queries at a time; None: `BLOCK`, fewer where that takes `BLOCK_BYTES`.

    Raises:
        TrialFailure: a score is not a number.
    """
    size = len(references)
    depth = min(depth, size)
    block = block or max(1, min(BLOCK, BLOCK_BYTES // (BYTES_PER_PAIR * size)))
    classes = int(torch.maximum(query_labels.max(), reference_labels.max())) + 1
    members = torch.bincount(reference_labels, minlength=classes)
    later = torch.arange(size - 1, -1, -1, device=references.device)
    for first in range(0, len(queries), block):
        rows = slice(first, first + block)
        labels = query_labels[rows]
        keys = order_keys(score(queries[rows], references), later)
        positives = members[labels]
        if self_index is not None:
            itself = self_index[rows, None]
            keys.scatter_(1, itself, EXCLUDED)
            positives = positives - (reference_labels[itself[:, 0]] == labels).long()
        nearest = largest(keys, depth)
        labels_near = reference_labels[size - 1 - (nearest & 0xFFFFFFFF).clamp(max=size - 1)]
        relevant = (labels_near == labels[:, None]) & (nearest != EXCLUDED)
        yield places_of(relevant, positives)


def order_keys(scores: Tensor, later: Tensor) -> Tensor:
    """int64 keys whose order is (score ascending, index descending); all different in a row.

    Args:
        scores: [B, R].
        later: [R] int64, R − 1 … 0: of two equal scores the first index has the larger key.
    """
    # A sum costs less than a look at each number, and shows whether that is needed.
    if torch.isnan(scores.sum()) and torch.isnan(scores).any():
        raise TrialFailure("evaluation: a similarity score is not a number")
    # + 0.0 makes −0.0 equal to 0.0 in bits too, and a copy that may be written over.
    bits = (scores.float() + 0.0).view(torch.int32)
    # Negative floats order backwards as integers: flip all but the sign.
    monotone = (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits)
    return monotone.long().bitwise_left_shift_(32).bitwise_or_(later)


def largest(keys: Tensor, depth: int) -> Tensor:
    """The `depth` largest of each row [B, depth], descending; `keys` [B, R] is spoilt.

    Numbers, so that it does not matter who sorts them. On a CPU numpy does, whose partition is
    vectorised: a fifth of topk's time.
    """
    if keys.device.type != "cpu":
        return keys.topk(depth, dim=1).values
    found = keys.numpy()
    first = keys.shape[1] - depth
    if first:
        found.partition(first, axis=1)
        found = found[:, first:]
    found.sort(axis=1)
    return torch.from_numpy(found[:, ::-1].copy())
