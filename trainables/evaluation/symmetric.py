"""Places of positives where every item queries all others and the score is plain: half the work.

Items are sorted by class and cut into groups of whole classes. All pairs of one class then lie in
the square tiles on the diagonal, which give the positives of every query. Of the other tiles only
those above the diagonal are made: each is read twice, for its rows as queries and for its columns.

So the score of a pair is computed once, in float32, and is one number wherever it is compared.
Ties of that number go by index. The score of a pair against that of another pair carries the
rounding of float32, as in any float32 ranking: items that are bitwise duplicates tie where the
matrix product sums all elements in one order, which `GROUP` and `WIDTH`, multiples of a
kernel's tile, are for; with embeddings whose products are exact they tie always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.evaluation.places import FAR, Places
from trainables.evaluation.scores import PlainScore

GROUP = 1024  # rows of a tile
WIDTH = 4096  # columns of a tile: with GROUP, 16 MiB
MOST_POSITIVES = 32_000_000  # ordered pairs of one class: 16 bytes each
Numbers = np.ndarray[Any, np.dtype[Any]]


def fits(labels: Tensor) -> bool:
    """Whether the positives of all queries fit in memory, and every class in a tile."""
    sizes = torch.unique(labels, return_counts=True)[1]
    return int(sizes.max()) <= GROUP and int((sizes * (sizes - 1)).sum()) <= MOST_POSITIVES


def symmetric_places(
    embeddings: Tensor, labels: Tensor, score: PlainScore, limit: Callable[[Tensor], Tensor]
) -> Iterator[Places]:
    """Places of the positives of every item, in blocks of queries, on the CPU.

    Args:
        embeddings: [N, E], finite. labels: [N] int64, 0 ≤ label < N. See `fits`.
        limit: positives [B] int64 → the last place of interest [B].
    """
    from trainables.evaluation import counting

    order = labels.argsort(stable=True)
    # prepare() may return the rows themselves; indexing copies.
    rows = score.prepare(embeddings[order])
    squares = score.squares(rows)
    sizes = torch.bincount(labels)[labels[order]]
    ends = labels[order].bincount().cumsum(0)[labels[order]]
    positives = sizes - 1
    start = (positives.cumsum(0) - positives).numpy()
    total, count = int(positives.sum()), len(rows)
    keys, scores = np.empty(total, np.int64), np.empty(total, np.float32)
    counts = np.zeros(total, np.int32)
    active, floor = np.zeros(count, np.int64), np.empty(count, np.float32)
    bound, item = limit(positives).numpy(), order.numpy()
    own, span = np.arange(count), torch.stack([ends - sizes, ends], 1).numpy()
    groups = cut(ends)
    buffer = torch.empty(max(GROUP * WIDTH, max(b - a for a, b in groups) ** 2))

    def tile(a: slice, b: slice) -> tuple[Numbers, Numbers]:
        out = buffer[: (a.stop - a.start) * (b.stop - b.start)].view(a.stop - a.start, -1)
        made = score.tile(rows[a], rows[b], squares[a], squares[b], out).numpy()
        return made, made.view(np.int32)

    with Shared() as shared:
        for first, last in groups:
            a = slice(first, last)
            made, bits = tile(a, a)
            counting.mirror(made)
            mine = (keys, scores, start[a], active[a], floor[a])
            shared(
                counting.positives,
                made,
                bits,
                item[a],
                own[a] - first,
                span[a] - first,
                *mine,
                n=last - first,
            )
            known = (keys, scores, counts)
            shared(
                counting.count_rows,
                made,
                bits,
                item[a],
                own[a] - first,
                *known,
                start[a],
                active[a],
                floor[a],
                bound[a],
                n=last - first,
            )
        nobody = np.full(GROUP, -1)
        for first, last in groups:
            a = slice(first, last)
            for left in range(last, count, WIDTH):
                b = slice(left, min(left + WIDTH, count))
                made, bits = tile(a, b)
                shared(
                    counting.count_rows,
                    made,
                    bits,
                    item[b],
                    nobody,
                    *known,
                    start[a],
                    active[a],
                    floor[a],
                    bound[a],
                    n=last - first,
                )
                shared(
                    counting.count_columns,
                    made,
                    bits,
                    item[a],
                    *known,
                    start[b],
                    active[b],
                    floor[b],
                    bound[b],
                    n=b.stop - left,
                )
    for first, last in groups:
        a = slice(first, last)
        places = np.empty((last - first, int(positives[a].max())), np.int64)
        counting.fill_places(counts, start[a], active[a], bound[a], places, FAR)
        yield Places(torch.from_numpy(places), positives[a])


def cut(ends: Tensor) -> list[tuple[int, int]]:
    """Groups of whole classes, of at most `GROUP` items, as (first, last + 1)."""
    pieces, first = [], 0
    borders = torch.unique(ends).tolist()
    for border, following in zip(borders, [*borders[1:], None], strict=True):
        if following is None or following - first > GROUP:
            pieces.append((first, border))
            first = border
    return pieces


class Shared:
    """Threads that share the queries of a tile; as many as torch uses."""

    def __init__(self) -> None:
        self.threads = torch.get_num_threads()
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown()

    def __call__(self, work: Callable[..., Any], *args: Any, n: int) -> list[Any]:
        """work(*args, (from, to)) over the parts of range(n); parts begin at multiples of 32."""
        if self.pool is None or n < 256:
            return [work(*args, (0, n))]
        step = -(-n // self.threads // 32) * 32
        parts = [(at, min(at + step, n)) for at in range(0, n, step)]
        return [f.result() for f in [self.pool.submit(work, *args, part) for part in parts]]
