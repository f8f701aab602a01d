"""Find places of positives by counting, in compiled code, the items before each positive.

An item is (score, index) packed in one int64 key, as in `ranking.build_order_keys`; an item comes
before another if its key is larger. A query's positives have keys k₁ > k₂ > … and counters c₁, c₂,
…; an item adds one to the counter of the first positive that it comes before, so that the place of
the i-th positive is 1 + c₁ + … + cᵢ. When a positive's count passes the query's `limit`, that
positive and all after it are dropped, which raises `floor`, the score below which items do not
count. So only about `limit` items per query are examined one by one; the others are compared with
`floor`, many at a time.

Items are sorted by class, so that a query's positives are adjacent columns. `count_whole_rows`
works for any score, and for query and gallery, in the memory of one block of queries. `count_half`
needs a plain score and items that all query each other, and computes half of the products: items
are cut into groups of complete classes, so that all pairs of one class are in the square tiles on
the diagonal; of the other tiles only those above the diagonal are computed, and each is used for
its rows and for its columns as queries. `GROUP` and `WIDTH` are multiples of a kernel's tile, so
that the matrix product sums bitwise duplicates in one order and they tie.

Compiled functions release the GIL and write only to the queries of their thread. Their arguments:
    tile, bits: [B, R] scores, as float32 and reinterpreted as int32.
    item: [R] int64, index of each column for ties.
    self_column: [B] the column of the query itself, or −1.
    keys, scores, counts: [T] of all positives.
    start, active, floor, limit: [B] of each query.
    rows, columns: (from, to) of the queries.
"""

# The signatures of compiled functions are numba's: arrays are C-ordered numpy arrays.
from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from trainables.errors import TrialFailure
from trainables.evaluation.ranking_metrics import FAR, PositiveRanks
from trainables.evaluation.scores import PlainScore, Score

Numbers = np.ndarray[Any, np.dtype[Any]]

BLOCK_BYTES = 128 * 2**20  # scores and positives of a block; `score` may take some times as much
GROUP = 1024  # rows of a tile
WIDTH = 4096  # columns of a tile: with GROUP, 16 MiB
CHUNK = 32  # columns that are compared together, in vector instructions
STRIPE = 512  # columns read row by row: 2 KiB at a time, their floors stay in the L1 cache
LAST = 0x7FFFFFFF
NEVER = np.float32(np.inf)


@njit(cache=True, nogil=True, inline="always")
def _build_sort_key(score, bits, index):  # type: ignore[no-untyped-def]
    """Return the int64 key by which items are ordered; `bits` are those of `score`, −0.0 is 0.0."""
    high_bits = np.int64(0) if score == 0 else np.int64(bits)
    if high_bits < 0:
        high_bits = high_bits ^ np.int64(LAST)
    return (high_bits << np.int64(32)) | np.int64(LAST - index)


@njit(cache=True, nogil=True, inline="always")
def _count_key(key, keys, counts, first, active):  # type: ignore[no-untyped-def]
    """Count `key` at the first of keys[first : first + active], descending, that it exceeds."""
    low, high = 0, active
    while low < high:
        middle = (low + high) // 2
        if key > keys[first + middle]:
            high = middle
        else:
            low = middle + 1
    if low < active:
        counts[first + low] += 1


@njit(cache=True, nogil=True)
def _drop_far_positives(query, scores, counts, start, active, floor, limit):  # type: ignore[no-untyped-def]
    """Drop the positives of `query` whose place is already beyond its limit."""
    first, before = start[query], 0
    for i in range(active[query]):
        before += counts[first + i]
        if before >= limit[query]:
            active[query] = i
            floor[query] = scores[first + i - 1] if i > 0 else NEVER
            return


@njit(cache=True, nogil=True)
def find_positives(tile, bits, item, self_column, group, keys, scores, start, active, floor, rows):  # type: ignore[no-untyped-def]
    """Fill in keys and scores of the positives of the queries `rows`, and set `active` and `floor`.

    The positives of query q are the columns group[q, 0] ≤ c < group[q, 1], without itself.
    """
    for q in range(rows[0], rows[1]):
        n = start[q]
        for c in range(group[q, 0], group[q, 1]):
            if c != self_column[q]:
                keys[n], scores[n] = _build_sort_key(tile[q, c], bits[q, c], item[c]), tile[q, c]
                n += 1
        size = n - start[q]
        order = np.argsort(-keys[start[q] : n])
        keys[start[q] : n] = keys[start[q] : n][order]
        scores[start[q] : n] = scores[start[q] : n][order]
        active[q] = size
        floor[q] = scores[n - 1] if size > 0 else NEVER


@njit(cache=True, nogil=True)
def count_rows(  # type: ignore[no-untyped-def]
    tile, bits, item, self_column, keys, scores, counts, start, active, floor, limit, rows
):
    """Count the columns of the tile for the queries that are its rows.

    Returns:
        The number of NaN scores; unless it is 0, the counts are meaningless.
    """
    width = tile.shape[1]
    bad = 0
    for q in range(rows[0], rows[1]):
        first, seen, strange = start[q], 0, 0
        for at in range(0, width, CHUNK):
            end = min(at + CHUNK, width)
            least, near = floor[q], 0
            if end - at == CHUNK:
                for i in range(CHUNK):
                    near += not tile[q, at + i] < least
            else:
                near = 1
            if near == 0:
                continue
            for c in range(at, end):
                score = tile[q, c]
                if score >= least:
                    if c != self_column[q]:
                        _count_key(
                            _build_sort_key(score, bits[q, c], item[c]),
                            keys,
                            counts,
                            first,
                            active[q],
                        )
                        seen += 1
                elif score != score:
                    strange += 1
            if seen >= 512:
                _drop_far_positives(q, scores, counts, start, active, floor, limit)
                seen = 0
        if seen:
            _drop_far_positives(q, scores, counts, start, active, floor, limit)
        bad += strange
    return bad


@njit(cache=True, nogil=True)
def count_columns(tile, bits, item, keys, scores, counts, start, active, floor, limit, columns):  # type: ignore[no-untyped-def]
    """Count the rows of the tile for the queries that are its columns and not rows of it."""
    touched = np.zeros(columns[1], np.bool_)
    for left in range(columns[0], columns[1], STRIPE):
        right = min(left + STRIPE, columns[1])
        for r in range(tile.shape[0]):
            for at in range(left, right, CHUNK):
                end, near = min(at + CHUNK, right), 0
                if end - at == CHUNK:
                    for i in range(CHUNK):
                        near += tile[r, at + i] >= floor[at + i]
                else:
                    near = 1
                if near == 0:
                    continue
                for c in range(at, end):
                    if tile[r, c] >= floor[c]:
                        key = _build_sort_key(tile[r, c], bits[r, c], item[r])
                        _count_key(key, keys, counts, start[c], active[c])
                        touched[c] = True
            if r % 256 == 255:
                for c in range(left, right):
                    if touched[c]:
                        _drop_far_positives(c, scores, counts, start, active, floor, limit)
                        touched[c] = False
        for c in range(left, right):
            if touched[c]:
                _drop_far_positives(c, scores, counts, start, active, floor, limit)


@njit(cache=True, nogil=True)
def mirror_upper_triangle(tile):  # type: ignore[no-untyped-def]
    """Copy the upper triangle to the lower, so that a pair has the same score both ways."""
    for i in range(tile.shape[0]):
        for j in range(i):
            tile[i, j] = tile[j, i]


@njit(cache=True, nogil=True)
def fill_ranks(counts, start, active, limit, places, far):  # type: ignore[no-untyped-def]
    """Fill places[B, P] of the nearest positives, 1-based and ascending, and `far` elsewhere."""
    for q in range(places.shape[0]):
        before = 0
        for i in range(places.shape[1]):
            places[q, i] = far
        for i in range(active[q]):
            before += counts[start[q] + i]
            if before >= limit[q]:
                break
            places[q, i] = 1 + before


class Counters:
    """Hold the positives of queries, with their keys, scores and counts.

    Args:
        positives: [B] int64, the number of positives of each query.
        limit: positives [B] int64 → the last place that a metric needs, [B].
        pool: threads that share the queries of a tile.
    """

    def __init__(
        self, positives: Tensor, limit: Callable[[Tensor], Tensor], pool: ThreadPoolExecutor
    ) -> None:
        total, queries = int(positives.sum()), len(positives)
        self.positives, self.limit, self.pool = positives, limit(positives).numpy(), pool
        self.start = (positives.cumsum(0) - positives).numpy()
        self.keys, self.scores = np.empty(total, np.int64), np.empty(total, np.float32)
        self.counts = np.zeros(total, np.int32)
        self.active, self.floor = np.zeros(queries, np.int64), np.empty(queries, np.float32)

    def find_positives(
        self, of: slice, tile: Numbers, item: Numbers, self_column: Numbers, group: Numbers
    ) -> None:
        """Read from a tile the positives of the queries `of`, which are its rows."""
        queries = (self.start[of], self.active[of], self.floor[of])
        positives = (self_column, group, self.keys, self.scores)
        self._share_work(len(tile), find_positives, tile, item, *positives, *queries)

    def count_rows(self, of: slice, tile: Numbers, item: Numbers, self_column: Numbers) -> int:
        """Count a tile for the queries `of`, its rows; return the number of NaN scores."""
        return sum(
            self._share_work(
                len(tile), count_rows, tile, item, self_column, *self._collect_arrays(of)
            )
        )

    def count_columns(self, of: slice, tile: Numbers, item: Numbers) -> None:
        """Count a tile for the queries `of`, its columns."""
        self._share_work(tile.shape[1], count_columns, tile, item, *self._collect_arrays(of))

    def collect_ranks(self, of: slice) -> PositiveRanks:
        """Return the places of the positives of the queries `of`."""
        positives = self.positives[of]
        places = np.empty((len(positives), int(positives.max())), np.int64)
        fill_ranks(self.counts, self.start[of], self.active[of], self.limit[of], places, FAR)
        return PositiveRanks(torch.from_numpy(places), positives)

    def _collect_arrays(self, of: slice) -> tuple[Numbers, ...]:
        queries = (self.start[of], self.active[of], self.floor[of], self.limit[of])
        return self.keys, self.scores, self.counts, *queries

    def _share_work(
        self, n: int, work: Callable[..., Any], tile: Numbers, *arrays: Numbers
    ) -> list[Any]:
        """Call `work` in threads for parts (from, to) of range(n) that consist of whole chunks."""
        arguments, threads = (tile, tile.view(np.int32), *arrays), torch.get_num_threads()
        if threads == 1 or n < 256:
            return [work(*arguments, (0, n))]
        step = -(-n // threads // CHUNK) * CHUNK
        parts = [(at, min(at + step, n)) for at in range(0, n, step)]
        return [f.result() for f in [self.pool.submit(work, *arguments, part) for part in parts]]


def count_whole_rows(
    queries: Tensor,
    query_labels: Tensor,
    references: Tensor,
    reference_labels: Tensor,
    *,
    score: Score,
    limit: Callable[[Tensor], Tensor],
    self_index: Tensor | None = None,
    block: int | None = None,
) -> Iterator[PositiveRanks]:
    """Find places from complete rows of scores, in blocks of queries.

    Args:
        limit: positives [B] → the last place that a metric needs, [B].

    For the other arguments and errors see `ranking.sort_nearest`.
    """
    size = len(references)
    most_members = int(torch.bincount(reference_labels).max())
    block = block or max(1, min(1024, BLOCK_BYTES // (4 * size + 24 * most_members)))
    order = reference_labels.argsort(stable=True)
    column = order.argsort()
    rows, item = references[order], order.numpy()
    classes = int(torch.maximum(query_labels.max(), reference_labels.max())) + 1
    members = torch.bincount(reference_labels, minlength=classes)
    ends = members.cumsum(0)
    all_rows = slice(None)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for first in range(0, len(queries), block):
            span = slice(first, first + block)
            labels = query_labels[span]
            tile = score(queries[span], rows).float().contiguous().numpy()
            positives, self_column = members[labels], torch.full((len(labels),), -1)
            if self_index is not None:
                self_column = column[self_index[span]]
                positives = positives - (reference_labels[self_index[span]] == labels).long()
            group = torch.stack([ends[labels] - members[labels], ends[labels]], 1).numpy()
            counters = Counters(positives, limit, pool)
            counters.find_positives(all_rows, tile, item, self_column.numpy(), group)
            bad = counters.count_rows(all_rows, tile, item, self_column.numpy())
            if bad or np.isnan(counters.scores).any():
                raise TrialFailure("evaluation: a similarity score is not a number")
            yield counters.collect_ranks(all_rows)


def count_half(
    embeddings: Tensor, labels: Tensor, score: PlainScore, limit: Callable[[Tensor], Tensor]
) -> Iterator[PositiveRanks]:
    """Find the places of the positives of every item among all others, in blocks of queries.

    Args:
        embeddings: [N, E], finite, on the CPU.
        labels: [N] int64, 0 ≤ label < N, of classes of at most `GROUP` items.
        score: the plain score.
        limit: positives [B] int64 → the last place that a metric needs, [B].
    """
    # sort the items by class and cut them into groups of complete classes
    order = labels.argsort(stable=True)
    rows = score.prepare(embeddings[order])
    squares = score.compute_squares(rows)
    members = torch.bincount(labels)
    sizes, ends = members[labels[order]], members.cumsum(0)[labels[order]]
    count, item = len(rows), order.numpy()
    self_column, span = np.arange(count), torch.stack([ends - sizes, ends], 1).numpy()
    groups = split_class_groups(ends)
    buffer = torch.empty(max(GROUP * WIDTH, *((b - a) ** 2 for a, b in groups)))

    def score_tile(a: slice, b: slice) -> Numbers:
        out = buffer[: (a.stop - a.start) * (b.stop - b.start)].view(a.stop - a.start, -1)
        tile: Numbers = score.score_tile(rows[a], rows[b], squares[a], squares[b], out).numpy()
        return tile

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        counters = Counters(sizes - 1, limit, pool)
        # find all positives in the tiles on the diagonal
        for first, last in groups:
            a = slice(first, last)
            tile = score_tile(a, a)
            mirror_upper_triangle(tile)
            counters.find_positives(a, tile, item[a], self_column[a] - first, span[a] - first)
            counters.count_rows(a, tile, item[a], self_column[a] - first)
        # count the tiles above the diagonal, for their rows and their columns
        no_self_columns = np.full(GROUP, -1)
        for first, last in groups:
            a = slice(first, last)
            for start in range(last, count, WIDTH):
                b = slice(start, min(start + WIDTH, count))
                tile = score_tile(a, b)
                counters.count_rows(a, tile, item[b], no_self_columns)
                counters.count_columns(b, tile, item[a])
    for first, last in groups:
        yield counters.collect_ranks(slice(first, last))


def split_class_groups(ends: Tensor) -> list[tuple[int, int]]:
    """Cut sorted items into groups of complete classes with at most `GROUP` items.

    Returns:
        (first, last + 1) of each group.
    """
    pieces, first = [], 0
    borders = torch.unique(ends).tolist()
    for border, following in zip(borders, [*borders[1:], None], strict=True):
        if following is None or following - first > GROUP:
            pieces.append((first, border))
            first = border
    return pieces
