"""k-means by Lloyd's iterations in torch, on the device of the rows; exact and deterministic.

Start: k distinct items drawn at random from `seed`; one start unless `restarts` says more. 20
iterations, or fewer where an iteration changes nothing. A centre that loses all its items takes
over the item farthest from its own centre. Of two centres equally near the first wins.

The same on every machine, whether faiss is there or not, and no approximation: an item is compared
with all centres only if its own has moved, and else with those that moved, for one that did not
move cannot have come nearer. With many centres most stand still after a few iterations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.machine.kernels import by_onednn, product

ITERATIONS = 20
DISTANCE_BYTES = 16 * 2**20  # a block of distances: best near the size of a CPU's cache
DISTANCE_BYTES_GPU = 512 * 2**20
OBJECTIVE_ROWS = 4096


def kmeans(
    rows: Tensor, k: int, *, seed: int, iterations: int = ITERATIONS, restarts: int = 1
) -> Tensor:
    """Clusters [N] int64 of float32 rows [N, E]: the nearest centre of each after the last
    iteration. k ≤ N.

    restarts: starts, drawn one after the other from `seed`, the first of them the same however many
        there are; the clusters of least `objective` are taken, the first of equals. Time grows
        with the number, memory does not.
    """
    generator = torch.Generator().manual_seed(seed)
    best, least = None, math.inf
    for _ in range(restarts):
        start = torch.randperm(len(rows), generator=generator)[:k].to(rows.device)
        clusters = lloyd(rows, rows[start], iterations)
        spread = objective(rows, clusters, k) if restarts > 1 else 0.0
        if spread < least:
            best, least = clusters, spread
    assert best is not None  # restarts ≥ 1, and the spread of finite rows is finite
    return best


def lloyd(rows: Tensor, centres: Tensor, iterations: int) -> Tensor:
    """Clusters [N] from a start: centres [k, E]."""
    k = len(centres)
    everything = torch.arange(k, device=rows.device)
    clusters, distances = nearest(rows, centres, everything)
    for _ in range(iterations):
        updated = means(rows, clusters, k)
        empty = torch.nonzero(torch.bincount(clusters, minlength=k) == 0)[:, 0]
        if len(empty):
            updated[empty] = rows[distances.argsort(descending=True, stable=True)[: len(empty)]]
        changed = (updated != centres).any(1)
        if not changed.any():
            break
        centres = updated
        # Some items see all centres, the others only those that moved.
        full = torch.nonzero(changed[clusters])[:, 0]
        part = torch.nonzero(~changed[clusters])[:, 0]
        found, at = nearest(rows[full], centres, everything)
        clusters = clusters.clone()
        clusters[full], distances[full] = found, at
        if len(part):
            found, at = nearest(rows[part], centres, torch.nonzero(changed)[:, 0])
            old, was = clusters[part], distances[part]
            better = (at < was) | ((at == was) & (found < old))
            clusters[part] = torch.where(better, found, old)
            distances[part] = torch.where(better, at, was)
    return clusters


def nearest(rows: Tensor, centres: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Index [N] of the nearest of centres[among], and ‖centre‖² − 2⟨row, centre⟩ + ‖row‖² [N]."""
    chosen = centres[among]
    limit = DISTANCE_BYTES if rows.device.type == "cpu" else DISTANCE_BYTES_GPU
    block = max(1, min(1024 if rows.device.type == "cpu" else 2**16, limit // (4 * len(among))))
    squares = (chosen**2).sum(1)
    places = []
    out = torch.empty(block, len(among), device=rows.device)
    twice = chosen * -2 if by_onednn(rows, chosen) else None
    for piece in torch.split(rows, block):
        if twice is None:
            far = torch.addmm(squares, piece, chosen.T, alpha=-2, out=out[: len(piece)])
        else:
            far = product(piece, twice, squares)
        places.append(far.min(1))
    if not places:
        return among[:0], rows.new_empty(0)
    picked = torch.cat([piece.indices for piece in places])
    values = torch.cat([piece.values for piece in places])
    return among[picked], values + (rows**2).sum(1)


def means(rows: Tensor, clusters: Tensor, k: int) -> Tensor:
    """Mean of each cluster [k, E]; zeros where it is empty. Summed in the order of the items on
    every device: a GPU's scattered additions come in any order."""
    order = clusters.argsort(stable=True)
    sizes = torch.bincount(clusters, minlength=k)
    sums = torch.segment_reduce(rows[order], "sum", lengths=sizes, axis=0)
    return sums / sizes.clamp(min=1)[:, None]


def objective(rows: Tensor, clusters: Tensor, k: int) -> float:
    """Σ ‖row − mean of its cluster‖², in float64, block by block."""
    centres, total = means(rows, clusters, k), 0.0
    for at in torch.split(torch.arange(len(rows), device=rows.device), OBJECTIVE_ROWS):
        total += float((rows[at] - centres[clusters[at]]).double().square().sum())
    return total
