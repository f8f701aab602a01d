"""Find the places (1-based ranks) of each query's positives among all items.

Items are ordered by descending score, then by ascending index. The nearest items are sorted here,
or, on a CPU with numba if many items query each other by a plain score, counted in `counting.py`;
both ways give the same places. Each score is packed with its index into one int64 key that sorts by
this rule: the bits of the float32, made monotone, above the inverted index.

Shape legend: B queries of a block · R references · E embedding · K depth.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

from trainables.evaluation.ranking_metrics import FAR, PositiveRanks, RankingMetric
from trainables.evaluation.scores import PlainScore, Score
from trainables.words.errors import TrialFailure

SMALL = 2048  # items up to which loading the compiled code costs more than it saves
LARGEST_CLASS = 1024  # items, which fit in a tile of `counting.count_places`
MAX_POSITIVES = 32_000_000  # ordered pairs of one class that it counts: 16 bytes each
BLOCK = 256  # queries; measured best, or level with it, from 900 to 12,000 items on a CPU
BLOCK_BYTES = 512 * 2**20  # bounds a block of scores and keys where references are many
BYTES_PER_PAIR = 28
EXCLUDED = torch.iinfo(torch.int64).min


def find_places(
    rows: Tensor,
    labels: Tensor,
    cut: int | None,
    score: Score,
    metrics: Sequence[RankingMetric],
    *,
    further: Tensor | None = None,
) -> Iterator[PositiveRanks]:
    """Yield the places (ranks from 1) of the positives of queries: other items of the same class.

    Args:
        rows: [N, E].
        labels: [N] int64, 0 ≤ label < N.
        cut: rows[:cut] are queries and rows[cut:] the gallery; None: each item queries all others,
            equal ones included.
        score: (q[B, E], r[R, E]) → [B, R], larger is closer.
        metrics: positives beyond the last place that one of these metrics needs are left out.
        further: [M, 2] int64, pairs of a query and a further label whose items in the gallery are
            positives of the query.
    """

    def limit(positives: Tensor) -> Tensor:
        depths = torch.stack([metric.depth(positives) for metric in metrics])
        return depths.amax(0).clamp(min=1)

    if isinstance(score, PlainScore):
        if cut is None and can_count(rows, labels):
            from trainables.evaluation.counting import count_places

            return count_places(rows, labels, score, limit)
        # normalize the rows once, not in every block
        rows, score = score.prepare(rows), PlainScore(score.kind)
    return sort_nearest(rows, labels, cut, score, limit, further=further)


def can_count(rows: Tensor, labels: Tensor) -> bool:
    """Return whether `counting.py` can rank the rows, and is faster than sorting."""
    sizes = torch.bincount(labels)
    return (
        find_spec("numba") is not None  # a Python without it sorts
        and rows.device.type == "cpu"
        and len(rows) > SMALL  # fewer rows are sorted before the compiled code is loaded
        and int(sizes.max()) <= LARGEST_CLASS  # scores of whole classes are computed at once
        and int((sizes * (sizes - 1)).sum()) <= MAX_POSITIVES  # all positive pairs are kept
    )


def sort_nearest(
    rows: Tensor,
    labels: Tensor,
    cut: int | None,
    score: Score,
    limit: Callable[[Tensor], Tensor],
    *,
    further: Tensor | None = None,
) -> Iterator[PositiveRanks]:
    """Yield the places of each query's positives (items of its class) among its K nearest items.

    rows[:cut] are queries and rows[cut:] the items; cut None: each row queries all others. `score`
    (q[B, E], r[R, E]) → [B, R] is compared as float32. `limit` maps numbers of positives [B] to the
    last places that metrics need; K is the one for the largest number of positives. `further` is
    that of `find_places`.
    """
    queries, query_labels = rows[:cut], labels[:cut]
    references, reference_labels = (rows, labels) if cut is None else (rows[cut:], labels[cut:])
    # count the positives of each query
    members = torch.bincount(reference_labels, minlength=len(rows)) - int(cut is None)
    positives = members[query_labels]
    if further is not None:
        positives = positives.index_add(0, further[:, 0], members[further[:, 1]])
        relevant_pairs = further[:, 0] * len(rows) + further[:, 1]  # a number for each pair
    size = len(references)
    depth = min(size, int(limit(positives.max()[None])))
    block = max(1, min(BLOCK, BLOCK_BYTES // (BYTES_PER_PAIR * size)))
    inverted_index = torch.arange(size - 1, -1, -1, device=rows.device)  # the first tie is nearer
    for first in range(0, len(queries), block):
        block_labels = query_labels[first : first + block]
        keys = build_order_keys(score(queries[first : first + block], references), inverted_index)
        if cut is None:  # leave out each query itself
            keys.diagonal(first).fill_(EXCLUDED)
        # unpack the indices of the nearest items (low 32 bits), and mark those of the query's class
        nearest = take_largest(keys, depth)
        nearest_labels = reference_labels[size - 1 - (nearest & 0xFFFFFFFF).clamp(max=size - 1)]
        is_positive = nearest_labels == block_labels[:, None]
        if further is not None:
            query_numbers = torch.arange(first, first + len(keys), device=rows.device)
            pairs = query_numbers[:, None] * len(rows) + nearest_labels
            is_positive |= torch.isin(pairs, relevant_pairs)
        is_positive &= nearest != EXCLUDED
        # write the place of each row's i-th positive into its i-th column
        order = is_positive.cumsum(1) - 1
        most_positives = int(order[:, -1].max()) + 1
        query, rank = torch.nonzero(is_positive, as_tuple=True)
        places = torch.full((len(keys), most_positives), FAR, device=rows.device)
        places[query, order[query, rank]] = rank + 1
        yield PositiveRanks(places, positives[first : first + len(keys)], block_labels)


def build_order_keys(scores: Tensor, inverted_index: Tensor) -> Tensor:
    """Pack scores and indices of items into int64 keys [B, R], which are larger for nearer items.

    Args:
        scores: [B, R].
        inverted_index: [R] int64, R − 1 … 0: of two equal scores the first has the larger key.
    """
    # The sum is cheap, and NaN if a score is; but infinities of both signs also have the sum NaN.
    if torch.isnan(scores.sum()) and torch.isnan(scores).any():
        raise TrialFailure("evaluation: a similarity score is not a number")
    # + 0.0 gives −0.0 the bits of 0.0, and makes a copy that may be overwritten.
    bits = (scores.float() + 0.0).view(torch.int32)
    # Negative floats order backwards as integers: flip all but the sign.
    monotone = (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits)
    return monotone.long().bitwise_left_shift_(32).bitwise_or_(inverted_index)


def take_largest(keys: Tensor, depth: int) -> Tensor:
    """Return the `depth` largest keys of each row in descending order, [B, depth].

    `keys` [B, R] may be overwritten. On a CPU numpy's partition takes a fifth of topk's time.
    """
    if keys.device.type != "cpu":
        return keys.topk(depth, dim=1).values
    largest, first = keys.numpy(), keys.shape[1] - depth
    if first:  # not all keys are asked for
        largest.partition(first, axis=1)
        largest = largest[:, first:]
    largest.sort(axis=1)
    return torch.from_numpy(largest[:, ::-1].copy())
