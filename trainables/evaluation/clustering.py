"""k-means, and the agreement of its clusters with the classes: NMI, AMI, pairwise F1.

All three come from the contingency table n_ij = items in cluster i and class j, kept sparse: at
SOP's 11,316 clusters the dense one takes a GiB. The clustering is `kmeans`, k = classes of the
evaluated split; rows are brought to unit length first, as papers cluster cosine embeddings.

k-means is by Lloyd's iterations in torch, on the device of the rows, exactly. It starts from k
distinct items drawn at random from `seed`; one start unless `restarts` says more. 20 iterations,
or fewer where an iteration changes nothing. A centre that loses all its items takes over the item
farthest from its own centre. Of two centres equally near the first wins. An item is compared with
all centres only if its own has moved, and else with those that moved, for one that did not move
cannot have come nearer. With many centres most stand still after a few iterations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainables.evaluation.metric import metric
from trainables.machine.kernels import onednn_product, uses_onednn

ITERATIONS = 20
DISTANCE_BYTES = 16 * 2**20  # a block of distances: best near the size of a CPU's cache
DISTANCE_BYTES_GPU = 512 * 2**20
OBJECTIVE_ROWS = 4096


@dataclass(frozen=True)
class Contingency:
    """cells: [T] the n_ij > 0; clusters, classes: their sums over j and i. int64, on the CPU."""

    cells: Tensor
    clusters: Tensor
    classes: Tensor


def build_contingency(clusters: Tensor, classes: Tensor) -> Contingency:
    """Of two labellings [N], by any integers."""
    a, b = (torch.unique(x, return_inverse=True)[1] for x in (clusters.cpu(), classes.cpu()))
    cells = torch.unique(a * (int(b.max()) + 1) + b, return_counts=True)[1]
    return Contingency(cells, torch.bincount(a), torch.bincount(b))


def entropy(sizes: Tensor) -> float:
    """Return −Σ p log p, p = sizes / Σ sizes, in nats."""
    p = sizes.double() / int(sizes.sum())
    return float(-torch.special.xlogy(p, p).sum())


@metric("nmi", reads="clusters", unit="%")
def nmi(table: Contingency) -> float:
    """Return normalised mutual information 2·I/(H(clusters) + H(classes)), in [0, 1] (arithmetic
    mean, as scikit-learn's default); 1 if each is a single group (they tell the same: nothing)."""
    of_a, of_b = entropy(table.clusters), entropy(table.classes)
    if of_a + of_b == 0:
        return 1.0
    # I = H(a) + H(b) − H(a, b)
    return min(1.0, max(0.0, 2 * (of_a + of_b - entropy(table.cells)) / (of_a + of_b)))


@metric("ami", reads="clusters", unit="%")
def ami(table: Contingency) -> float:
    """Return adjusted mutual information (I − E)/((H(clusters) + H(classes))/2 − E), at most 1 and
    near 0 by chance; E is I expected of random groups of the same sizes (Vinh et al., JMLR 2010).
    """
    of_a, of_b = entropy(table.clusters), entropy(table.classes)
    groups = (len(table.clusters), len(table.classes))
    # Both one group, or both all singletons: nothing to adjust, they agree.
    if groups in ((1, 1), (int(table.cells.sum()),) * 2):
        return 1.0
    chance = expected_mutual_information(table)
    above = (of_a + of_b) / 2 - chance
    above = math.copysign(max(abs(above), np.finfo(float).eps), above)
    return (of_a + of_b - entropy(table.cells) - chance) / above


def expected_mutual_information(table: Contingency) -> float:
    """Return E[I] in nats under the hypergeometric model.

    E = Σ_ij Σ_n n/N · log(N n/(a_i b_j)) · P(n; N, a_i, b_j). A term depends on the two sizes only,
    so it is computed once for each pair of different sizes and weighted by how often that occurs.
    """
    from scipy.special import gammaln

    total = int(table.cells.sum())
    sizes_b, times_b = (x.numpy() for x in torch.unique(table.classes, return_counts=True))
    sums = []
    for a, times_a in zip(*torch.unique(table.clusters, return_counts=True), strict=True):
        size, log_a = int(a), math.log(int(a))
        for b, times in zip(sizes_b, times_b, strict=True):
            n = np.arange(max(1, size + b - total), min(size, b) + 1, dtype=float)
            above = (size, b, total - size, total - b)
            below = (total, n, size - n, b - n, total - size - b + n)
            log_p = sum(gammaln(k + 1) for k in above)
            for k in below:
                log_p = log_p - gammaln(k + 1)
            share = n / total * (math.log(total) + np.log(n) - log_a - math.log(b))
            sums.append(int(times_a) * int(times) * float((share * np.exp(log_p)).sum()))
    return math.fsum(sums)


@metric("f1", reads="clusters", unit="%")
def f1(table: Contingency) -> float:
    """Return pairwise F1 = 2·TP/(2·TP + FP + FN) over unordered pairs of items: positive = of one
    cluster, true = of one class. Exact integers. 1 if no pair is together in either."""
    together = count_pairs(table.cells)
    said = count_pairs(table.clusters) + count_pairs(table.classes)
    return 2 * together / said if said else 1.0


def count_pairs(sizes: Tensor) -> int:
    return int((sizes * (sizes - 1) // 2).sum())


def kmeans(
    rows: Tensor, k: int, *, seed: int, iterations: int = ITERATIONS, restarts: int = 1
) -> Tensor:
    """Return clusters [N] int64 of float32 rows [N, E]: the nearest centre of each after the last
    iteration. k ≤ N.

    restarts: starts, drawn one after the other from `seed`; the clusters of least `objective` are
        taken, the first of equals.
    """
    generator = torch.Generator().manual_seed(seed)
    best, least = None, math.inf
    for _ in range(restarts):
        start = torch.randperm(len(rows), generator=generator)[:k].to(rows.device)
        clusters = run_lloyd(rows, rows[start], iterations)
        spread = compute_objective(rows, clusters, k) if restarts > 1 else 0.0
        if spread < least:
            best, least = clusters, spread
    assert best is not None  # restarts ≥ 1, and the spread of finite rows is finite
    return best


def run_lloyd(rows: Tensor, centres: Tensor, iterations: int) -> Tensor:
    """Return clusters [N] from a start: centres [k, E]."""
    k = len(centres)
    everything = torch.arange(k, device=rows.device)
    clusters, distances = find_nearest(rows, centres, everything)
    for _ in range(iterations):
        updated = compute_cluster_means(rows, clusters, k)
        empty = torch.nonzero(torch.bincount(clusters, minlength=k) == 0)[:, 0]
        if len(empty):
            updated[empty] = rows[distances.argsort(descending=True, stable=True)[: len(empty)]]
        changed = (updated != centres).any(1)
        if not changed.any():
            break
        centres, moved = updated, changed[clusters]
        # Some items see all centres, the others only those that moved.
        full, part = (torch.nonzero(each)[:, 0] for each in (moved, ~moved))
        clusters = clusters.clone()
        clusters[full], distances[full] = find_nearest(rows[full], centres, everything)
        if len(part):
            other, far = find_nearest(rows[part], centres, torch.nonzero(changed)[:, 0])
            old, was = clusters[part], distances[part]
            better = (far < was) | ((far == was) & (other < old))
            clusters[part] = torch.where(better, other, old)
            distances[part] = torch.where(better, far, was)
    return clusters


def find_nearest(rows: Tensor, centres: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Return index [N] of the nearest of centres[among], and ‖centre‖² − 2⟨row, centre⟩ + ‖row‖²
    [N]."""
    chosen = centres[among]
    limit = DISTANCE_BYTES if rows.device.type == "cpu" else DISTANCE_BYTES_GPU
    block = max(1, min(1024 if rows.device.type == "cpu" else 2**16, limit // (4 * len(among))))
    squares = (chosen**2).sum(1)
    values, indices = rows.new_empty(len(rows)), among.new_empty(len(rows))
    out = torch.empty(block, len(among), device=rows.device)
    twice = chosen * -2 if uses_onednn(rows, chosen) else None
    for first in range(0, len(rows), block):
        piece, at = rows[first : first + block], slice(first, first + block)
        if twice is None:
            far = torch.addmm(squares, piece, chosen.T, alpha=-2, out=out[: len(piece)])
        else:
            far = onednn_product(piece, twice, squares)
        values[at], indices[at] = far.min(1)
    return among[indices], values + (rows**2).sum(1)


def compute_cluster_means(rows: Tensor, clusters: Tensor, k: int) -> Tensor:
    """Mean of each cluster [k, E]; zeros where it is empty. Summed in the order of the items on
    every device: a GPU's scattered additions come in any order."""
    order = clusters.argsort(stable=True)
    sizes = torch.bincount(clusters, minlength=k)
    sums = torch.segment_reduce(rows[order], "sum", lengths=sizes, axis=0)
    return sums / sizes.clamp(min=1)[:, None]


def compute_objective(rows: Tensor, clusters: Tensor, k: int) -> float:
    """Return Σ ‖row − mean of its cluster‖², in float64, block by block."""
    centres, total = compute_cluster_means(rows, clusters, k), 0.0
    for at in torch.split(torch.arange(len(rows), device=rows.device), OBJECTIVE_ROWS):
        total += float((rows[at] - centres[clusters[at]]).double().square().sum())
    return total
