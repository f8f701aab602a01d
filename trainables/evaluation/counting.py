"""Find places of positives by counting, in compiled code, the items before each positive.

An item is (score, index) packed in one int64 key, as in `ranking.build_order_keys`; an item comes
before another if its key is larger. A query's positives have keys k₁ > k₂ > … and counters c₁, c₂,
…; an item adds one to the counter of the first positive that it comes before, so that the place of
the i-th positive is 1 + c₁ + … + cᵢ. When a positive's count passes the query's `limit`, that
positive and all after it are dropped, which raises `floor`, the score below which items do not
count. So only about `limit` items per query are examined one by one; the others are compared with
`floor`, many at a time.

All items query each other by a plain score, which is symmetric, so that half of the products is
enough. Items are sorted by class, and cut into groups of complete classes: all pairs of one class
are in the square tiles on the diagonal. Of the other tiles only those above the diagonal are
computed, and each is counted for its rows and, transposed, for its columns. `GROUP` and `WIDTH` are
multiples of a kernel's tile, so that the matrix product sums bitwise duplicates in one order and
they tie.

Compiled functions release the GIL and write only to the queries of their thread. Their arguments:
    tile: [B, R] float32 scores of B queries and R items.
    item: [R] int64, index of each column for ties.
    self_column: [B] the column of the query itself, or −1.
    counters: the `Counters` of the B queries.
    rows: (from, to) of the queries of the thread.
"""

# The signatures of compiled functions are numba's: arrays are C-ordered numpy arrays.
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from trainables.evaluation.ranking_metrics import FAR, PositiveRanks
from trainables.evaluation.scores import PlainScore
from trainables.words.errors import TrialFailure

Array = np.ndarray[Any, np.dtype[Any]]

GROUP = 1024  # rows of a tile
WIDTH = 4096  # columns of a tile: with GROUP, 16 MiB
CHUNK = 32  # columns that are compared together, in vector instructions
DROP_EVERY = 512  # counted items after which positives beyond the limit are dropped
LARGEST_INT32 = 0x7FFFFFFF
NEVER = np.float32(np.inf)


class Counters(NamedTuple):
    """Hold the positives of queries.

    Attributes:
        keys, scores, counts: [T] of all positives, of which those of query q begin at start[q].
        start: [B] index of each query's first positive.
        active: [B] number of positives that are still counted.
        floor: [B] score below which items do not count.
        limit: [B] last place that a metric needs.
    """

    keys: Array
    scores: Array
    counts: Array
    start: Array
    active: Array
    floor: Array
    limit: Array

    def select(self, queries: slice) -> "Counters":
        """Return the counters of some queries, which share memory with these."""
        of_queries = (self.start, self.active, self.floor, self.limit)
        return Counters(*self[:3], *(array[queries] for array in of_queries))


@njit(cache=True, nogil=True, inline="always")
def _build_sort_key(score, bits, index):  # type: ignore[no-untyped-def]
    """Pack a score (`bits`: its float32 as an integer) and an item's index into a sort key."""
    high_bits = np.int64(0) if score == 0 else np.int64(bits)  # −0.0 counts as 0.0
    if high_bits < 0:  # negative floats order backwards as integers
        high_bits = high_bits ^ np.int64(LARGEST_INT32)
    return (high_bits << np.int64(32)) | np.int64(LARGEST_INT32 - index)


@njit(cache=True, nogil=True, inline="always")
def _count_key(key, keys, counts, first, active):  # type: ignore[no-untyped-def]
    """Add one to the count of the first positive whose key is below `key`, if there is one.

    keys[first : first + active]: sort keys of a query's positives, in descending order.
    """
    low, high = 0, active  # bisection
    while low < high:
        middle = (low + high) // 2
        if key > keys[first + middle]:
            high = middle
        else:
            low = middle + 1
    if low < active:
        counts[first + low] += 1


@njit(cache=True, nogil=True)
def _drop_far_positives(query, counters):  # type: ignore[no-untyped-def]
    """Stop counting for positives of `query` that are certain to rank beyond the query's limit.

    The floor, below which items do not count, becomes the score of the last positive that stays.
    """
    first, n_before = counters.start[query], 0
    for i in range(counters.active[query]):
        n_before += counters.counts[first + i]
        if n_before >= counters.limit[query]:
            counters.active[query] = i
            counters.floor[query] = counters.scores[first + i - 1] if i > 0 else NEVER
            return


@njit(cache=True, nogil=True)
def find_positives(tile, item, self_column, class_columns, counters, rows):  # type: ignore[no-untyped-def]
    """Write keys and scores of each query's positives into `counters`, in descending order.

    tile: scores [B, R] of queries and items. The positives of query q are the columns from
    class_columns[q, 0] to class_columns[q, 1] − 1, except the query's own column self_column[q].
    """
    bits = tile.view(np.int32)
    keys, scores = counters.keys, counters.scores
    for q in range(rows[0], rows[1]):
        first = counters.start[q]
        end = first
        for c in range(class_columns[q, 0], class_columns[q, 1]):
            if c != self_column[q]:
                keys[end] = _build_sort_key(tile[q, c], bits[q, c], item[c])
                scores[end] = tile[q, c]
                end += 1
        order = np.argsort(-keys[first:end])
        keys[first:end] = keys[first:end][order]
        scores[first:end] = scores[first:end][order]
        counters.active[q] = end - first
        counters.floor[q] = scores[end - 1] if end > first else NEVER


@njit(cache=True, nogil=True)
def count_rows(tile, item, self_column, counters, rows):  # type: ignore[no-untyped-def]
    """Count how many items (columns) rank before positives of the queries rows[0] to rows[1] − 1.

    An item adds one to the counter of the best of the query's positives that the item ranks before.
    Return the number of NaN scores; unless that is 0, the counts are meaningless.
    """
    bits = tile.view(np.int32)
    keys, counts, width, n_nan = counters.keys, counters.counts, tile.shape[1], 0
    for q in range(rows[0], rows[1]):
        first, n_counted = counters.start[q], 0
        for chunk in range(0, width, CHUNK):
            end = min(chunk + CHUNK, width)
            # skip chunks whose scores are all below the floor, under which no item matters
            floor, n_near = counters.floor[q], 0
            if end - chunk == CHUNK:
                for i in range(CHUNK):
                    n_near += not tile[q, chunk + i] < floor  # NaN counts as near
            else:
                n_near = 1  # never skip an incomplete chunk
            if n_near == 0:
                continue
            # count the items of other chunks one by one
            for c in range(chunk, end):
                score = tile[q, c]
                if score >= floor:
                    if c != self_column[q]:
                        key = _build_sort_key(score, bits[q, c], item[c])
                        _count_key(key, keys, counts, first, counters.active[q])
                        n_counted += 1
                elif score != score:  # NaN
                    n_nan += 1
            if n_counted >= DROP_EVERY:
                _drop_far_positives(q, counters)
                n_counted = 0
        if n_counted:
            _drop_far_positives(q, counters)
    return n_nan


@njit(cache=True, nogil=True)
def fill_ranks(counters, places):  # type: ignore[no-untyped-def]
    """Write the ranks of each query's nearest positives, ascending from 1, into places [B, P]."""
    for q in range(places.shape[0]):
        n_before = 0  # items before positive i: the sum of the counts up to that of positive i
        for i in range(counters.active[q]):
            n_before += counters.counts[counters.start[q] + i]
            if n_before >= counters.limit[q]:
                break
            places[q, i] = 1 + n_before


def count_places(
    embeddings: Tensor, labels: Tensor, score: PlainScore, limit: Callable[[Tensor], Tensor]
) -> Iterator[PositiveRanks]:
    """Yield the ranks (places) of each item's positives, the other items of its class.

    Args:
        embeddings: [N, E], finite, on the CPU.
        labels: [N] int64, 0 ≤ label < N, of classes of at most `GROUP` items.
        score: dot product, cosine or Euclidean distance.
        limit: numbers of positives [B] int64 → the last place that a metric needs, [B].
    """
    # sort the items by class and cut them into groups of complete classes
    order = labels.argsort(stable=True)
    rows, tile_score = score.prepare(embeddings[order]), PlainScore(score.kind)
    members = torch.bincount(labels)
    sizes, ends = members[labels[order]], members.cumsum(0)[labels[order]]
    groups: list[slice] = []
    borders, first = torch.unique(ends), 0
    while first < len(rows):
        next_borders = borders[borders > first]
        n_classes = max(1, int((next_borders <= first + GROUP).sum()))
        groups.append(slice(first, int(next_borders[n_classes - 1])))
        first = groups[-1].stop
    # make counters of all positives
    positives = sizes - 1
    n_items, n_positives = len(rows), int(positives.sum())
    counters = Counters(
        keys=np.empty(n_positives, np.int64),
        scores=np.empty(n_positives, np.float32),
        counts=np.zeros(n_positives, np.int32),
        start=(positives.cumsum(0) - positives).numpy(),
        active=np.zeros(n_items, np.int64),
        floor=np.empty(n_items, np.float32),
        limit=limit(positives).numpy(),
    )
    item, class_columns = order.numpy(), torch.stack([ends - sizes, ends], 1).numpy()
    own_columns, no_columns, n_nan = np.arange(n_items), np.full(max(GROUP, WIDTH), -1), 0
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        # process the square tile of each group, which has all positives of the group's queries
        for group in groups:
            upper = tile_score(rows[group], rows[group]).triu()
            tile = (upper + upper.triu(1).T).numpy()  # exactly symmetric
            own, columns = own_columns[group] - group.start, class_columns[group] - group.start
            queries = counters.select(group)
            _share_rows(pool, find_positives, tile, item[group], own, columns, queries)
            n_nan += sum(_share_rows(pool, count_rows, tile, item[group], own, queries))
        # process the tiles of a group and later items, with rows and then columns as the queries
        for group in groups:
            for start in range(group.stop, n_items, WIDTH):
                others = slice(start, min(start + WIDTH, n_items))
                scores = tile_score(rows[group], rows[others])
                for tile, query_rows, item_rows in (
                    (scores.numpy(), group, others),
                    (scores.T.contiguous().numpy(), others, group),
                ):
                    arguments = item[item_rows], no_columns, counters.select(query_rows)
                    n_nan += sum(_share_rows(pool, count_rows, tile, *arguments))
    if n_nan:
        raise TrialFailure("evaluation: a similarity score is not a number")
    for group in groups:
        places = np.full((group.stop - group.start, int(positives[group].max())), FAR, np.int64)
        fill_ranks(counters.select(group), places)
        yield PositiveRanks(torch.from_numpy(places), positives[group], labels[order[group]])


def _share_rows(
    pool: ThreadPoolExecutor, function: Callable[..., Any], tile: Array, *arguments: Any
) -> list[Any]:
    """Call a compiled function in threads, each with some rows of a tile; return all results."""
    n_rows, n_threads = len(tile), torch.get_num_threads()
    step = max(CHUNK, -(-n_rows // n_threads))
    parts = [(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]
    if len(parts) == 1:
        return [function(tile, *arguments, parts[0])]
    futures = [pool.submit(function, tile, *arguments, part) for part in parts]
    return [future.result() for future in futures]
