"""Compiled counting: how many items come before each positive of a query.

The place of a positive is 1 + the number of items before it, so nothing is sorted but a query's
positives. An item is (score, index) packed in one int64 key, as in `ranks.order_keys`: it comes
before another if its key is larger. A query's positives have keys k₁ > k₂ > … and counters c₁, c₂,
…; an item adds one to the counter of the first positive that it comes before; then the place of
the i-th is 1 + c₁ + … + cᵢ.

Places beyond a query's `limit` are of no interest. As soon as a positive's count passes it, that
positive and all after it are dropped, which raises `floor`, the score below which nothing counts.
What is left is a comparison with `floor`, many at a time: at most about `limit` items a query are
looked at one by one. That makes the cost per pair all but independent of the positives.

Compiled by numba at first use (a second or two; kept in its cache). All functions release the
GIL, and write only what belongs to the queries they are given, so that threads may share the work.
"""

# The signatures are numba's: arrays are C-ordered numpy arrays.
from __future__ import annotations

import numpy as np
from numba import njit

CHUNK = 32
STRIPE = 512  # columns read row by row: 2 KiB at a time, their floors stay in the L1 cache
LAST = 0x7FFFFFFF
NEVER = np.float32(np.inf)


@njit(cache=True, nogil=True, inline="always")
def _key(score, bits, index):  # type: ignore[no-untyped-def]
    """Larger = before. `bits`: of `score`; −0.0 counts as 0.0."""
    whole = np.int64(0) if score == 0 else np.int64(bits)
    if whole < 0:
        whole = whole ^ np.int64(LAST)
    return (whole << np.int64(32)) | np.int64(LAST - index)


@njit(cache=True, nogil=True, inline="always")
def _count(key, keys, counts, first, active):  # type: ignore[no-untyped-def]
    """Add one to the first of keys[first : first + active], descending, that `key` exceeds."""
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
def _drop(query, scores, counts, start, active, floor, limit):  # type: ignore[no-untyped-def]
    """Forget the positives of `query` whose place is known to be beyond its limit."""
    first, before = start[query], 0
    for i in range(active[query]):
        before += counts[first + i]
        if before >= limit[query]:
            active[query] = i
            floor[query] = scores[first + i - 1] if i > 0 else NEVER
            return


@njit(cache=True, nogil=True)
def positives(tile, bits, item, own, group, keys, scores, start, active, floor, rows):  # type: ignore[no-untyped-def]
    """Fill in the keys and scores of the positives of the queries `rows` = (from, to) of a tile.

    tile, bits: [B, R] float32 scores and the same as int32.
    item: [R] int64 index of each column for ties. own: [B] the query's column, or −1.
    group: [B, 2] the query's positives are columns group[q, 0] ≤ c < group[q, 1], less its own.
    keys, scores: [T]. start, active, floor: [B] of each query; `active` and `floor` are set.
    """
    for q in range(rows[0], rows[1]):
        n = start[q]
        for c in range(group[q, 0], group[q, 1]):
            if c != own[q]:
                keys[n], scores[n] = _key(tile[q, c], bits[q, c], item[c]), tile[q, c]
                n += 1
        size = n - start[q]
        order = np.argsort(-keys[start[q] : n])
        keys[start[q] : n] = keys[start[q] : n][order]
        scores[start[q] : n] = scores[start[q] : n][order]
        active[q] = size
        floor[q] = scores[n - 1] if size > 0 else NEVER


@njit(cache=True, nogil=True)
def count_rows(tile, bits, item, own, keys, scores, counts, start, active, floor, limit, rows):  # type: ignore[no-untyped-def]
    """Count for the queries rows[0] … rows[1] − 1, which are rows of the tile, over its columns.

    Shapes as in `positives`; counts: [T] int32, limit: [B]. Returns how many scores are not
    numbers (0, or counts mean nothing).
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
                    if c != own[q]:
                        _count(_key(score, bits[q, c], item[c]), keys, counts, first, active[q])
                        seen += 1
                elif score != score:
                    strange += 1
            if seen >= 512:
                _drop(q, scores, counts, start, active, floor, limit)
                seen = 0
        if seen:
            _drop(q, scores, counts, start, active, floor, limit)
        bad += strange
    return bad


@njit(cache=True, nogil=True)
def count_columns(tile, bits, item, keys, scores, counts, start, active, floor, limit, columns):  # type: ignore[no-untyped-def]
    """Count for the queries that are the columns columns[0] … of the tile, over all its rows.

    item: [B] of the rows. start, active, floor, limit: [R] of the columns. No query is a row too.
    """
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
                        key = _key(tile[r, c], bits[r, c], item[r])
                        _count(key, keys, counts, start[c], active[c])
                        touched[c] = True
            if r % 256 == 255:
                for c in range(left, right):
                    if touched[c]:
                        _drop(c, scores, counts, start, active, floor, limit)
                        touched[c] = False
        for c in range(left, right):
            if touched[c]:
                _drop(c, scores, counts, start, active, floor, limit)


@njit(cache=True, nogil=True)
def mirror(tile):  # type: ignore[no-untyped-def]
    """Copy the upper triangle to the lower: a pair has one score, computed once."""
    for i in range(tile.shape[0]):
        for j in range(i):
            tile[i, j] = tile[j, i]


@njit(cache=True, nogil=True)
def fill_places(counts, start, active, limit, places, far):  # type: ignore[no-untyped-def]
    """places[B, P] of the nearest positives, 1-based and ascending; `far` from the first one
    beyond the query's limit on."""
    for q in range(places.shape[0]):
        before = 0
        for i in range(places.shape[1]):
            places[q, i] = far
        for i in range(active[q]):
            before += counts[start[q] + i]
            if before >= limit[q]:
                break
            places[q, i] = 1 + before
