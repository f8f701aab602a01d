"""k-means, and the agreement of its clusters with the classes: NMI, AMI, pairwise F1.

The three metrics come from the contingency table n_ij, the items in cluster i and class j. It is
sparse, because for SOP's 11,316 clusters a dense table takes a GiB. k is the number of classes of
the evaluated split, and rows have unit length, as papers cluster cosine embeddings.

`kmeans` runs exact Lloyd iterations on the device of the rows: from k distinct items drawn by
`seed`, 20 iterations or until nothing changes. An empty cluster takes over the item farthest from
its centre. Of two equally near centres the first wins. An item is compared with all centres only if
its centre has moved, else only with the centres that moved: the others cannot have come nearer.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainables.evaluation.metric import metric

ITERATIONS = 20
DISTANCE_BYTES = 16 * 2**20  # a block of distances: best near the size of a CPU's cache
DISTANCE_BYTES_GPU = 512 * 2**20


@dataclass(frozen=True)
class Contingency:
    """Count the items by cluster and class, in int64 on the CPU.

    Attributes:
        cells: [T], the n_ij > 0.
        clusters: sizes of the clusters.
        classes: sizes of the classes.
    """

    cells: Tensor
    clusters: Tensor
    classes: Tensor


def build_contingency(clusters: Tensor, classes: Tensor) -> Contingency:
    """Count the items in each pair of cluster and class; both are integer labels [N]."""
    _, a = torch.unique(clusters.cpu(), return_inverse=True)  # numbers clusters without gaps
    _, b = torch.unique(classes.cpu(), return_inverse=True)
    _, cells = torch.unique(a * (int(b.max()) + 1) + b, return_counts=True)  # one number per pair
    return Contingency(cells, torch.bincount(a), torch.bincount(b))


def entropy(sizes: Tensor) -> float:
    """Return −Σ p log p, p = sizes / Σ sizes, in nats."""
    p = sizes.double() / int(sizes.sum())
    return float(-torch.special.xlogy(p, p).sum())


@metric("nmi", reads="clusters")
def nmi(table: Contingency) -> float:
    """Return normalised mutual information 2·I/(H(clusters) + H(classes)), in [0, 1].

    Entropies are averaged arithmetically, scikit-learn's default. One cluster and one class give 1.
    """
    total = entropy(table.clusters) + entropy(table.classes)
    if total == 0:  # one cluster and one class
        return 1.0
    # I = H(clusters) + H(classes) − H(clusters, classes)
    return min(1.0, max(0.0, 2 * (total - entropy(table.cells)) / total))


@metric("ami", reads="clusters")
def ami(table: Contingency) -> float:
    """Return adjusted mutual information (I − E)/((H(clusters) + H(classes))/2 − E).

    E is the mutual information expected of random groups of the same sizes, so that AMI is near 0
    by chance and at most 1 (Vinh et al., "Information theoretic measures for clusterings
    comparison", JMLR 2010).
    """
    total = entropy(table.clusters) + entropy(table.classes)
    items, groups = int(table.cells.sum()), (len(table.clusters), len(table.classes))
    # One cluster and one class agree, and so do clusters and classes of one item each (0/0 below).
    if groups in ((1, 1), (items, items)):
        return 1.0
    chance = expected_mutual_information(table)
    range_above_chance = total / 2 - chance
    # keep the sign, and avoid a division by 0
    divisor = math.copysign(max(abs(range_above_chance), np.finfo(float).eps), range_above_chance)
    return (total - entropy(table.cells) - chance) / divisor


def expected_mutual_information(table: Contingency) -> float:
    """Return E, the mutual information in nats expected of random groups of the same sizes.

    E = Σ_ij Σ_n n/N · log(N n/(a_i b_j)) · P(n; N, a_i, b_j), where P is the hypergeometric
    probability that cluster i (a_i of the N items) and class j (b_j items) have n items in common.
    The inner sum is computed once for all pairs of clusters and classes with the same two sizes.
    """
    from scipy.special import gammaln

    total = int(table.cells.sum())
    sizes_b, counts_b = (x.numpy() for x in torch.unique(table.classes, return_counts=True))
    sums = []
    for size_a, count_a in zip(*torch.unique(table.clusters, return_counts=True), strict=True):
        a, log_a = int(size_a), math.log(int(size_a))
        for b, count_b in zip(sizes_b, counts_b, strict=True):
            n = np.arange(max(1, a + b - total), min(a, b) + 1, dtype=float)
            numerator = (a, b, total - a, total - b)
            denominator = (total, n, a - n, b - n, total - a - b + n)
            # log P is a sum and difference of log factorials, where log k! = gammaln(k + 1)
            log_p = sum(gammaln(k + 1) for k in numerator)
            for k in denominator:
                log_p = log_p - gammaln(k + 1)
            terms = n / total * (math.log(total) + np.log(n) - log_a - math.log(b)) * np.exp(log_p)
            sums.append(int(count_a) * int(count_b) * float(terms.sum()))
    return math.fsum(sums)


@metric("f1", reads="clusters")
def f1(table: Contingency) -> float:
    """Return pairwise F1 = 2·TP/(2·TP + FP + FN) over unordered pairs of items, from exact counts.

    A pair is predicted positive if its items share a cluster, and positive if they share a class.
    F1 is 1 if no pair shares a cluster or a class.
    """
    true_positives = count_pairs(table.cells)
    total = count_pairs(table.clusters) + count_pairs(table.classes)  # 2·TP + FP + FN
    return 2 * true_positives / total if total else 1.0


def count_pairs(sizes: Tensor) -> int:
    """Return the number of unordered pairs within groups of these sizes."""
    return int((sizes * (sizes - 1) // 2).sum())


def kmeans(
    rows: Tensor, k: int, *, seed: int, iterations: int = ITERATIONS, restarts: int = 1
) -> Tensor:
    """Cluster float32 rows [N, E] into k ≤ N clusters; return the cluster of each row, [N] int64.

    k-means runs `restarts` times, from other random rows and for at most `iterations` iterations.
    The clusters with the smallest sum of squared distances to their means are returned.
    """
    generator = torch.Generator().manual_seed(seed)
    best, lowest = None, math.inf
    for _ in range(restarts):
        start = torch.randperm(len(rows), generator=generator)[:k].to(rows.device)
        clusters = run_lloyd(rows, rows[start], iterations)
        objective = compute_objective(rows, clusters, k) if restarts > 1 else 0.0
        if objective < lowest:
            best, lowest = clusters, objective
    assert best is not None  # restarts ≥ 1, and the objective of finite rows is finite
    return best


def run_lloyd(rows: Tensor, centres: Tensor, iterations: int) -> Tensor:
    """Run iterations of k-means from centres [k, E]; return the cluster of each row, [N].

    An iteration computes only distances that can change which centre is the nearest.
    """
    k = len(centres)
    all_indices = torch.arange(k, device=rows.device)
    clusters, distances = find_nearest(rows, centres, all_indices)
    for _ in range(iterations):
        # move the centres; an empty cluster takes the row farthest from its centre
        updated = compute_cluster_means(rows, clusters, k)
        empty = torch.nonzero(torch.bincount(clusters, minlength=k) == 0)[:, 0]
        if len(empty):
            updated[empty] = rows[distances.argsort(descending=True, stable=True)[: len(empty)]]
        has_moved = (updated != centres).any(1)  # of each centre
        if not has_moved.any():
            break
        centres, own_has_moved = updated, has_moved[clusters]
        # compare rows whose own centre moved with all centres
        full, part = torch.nonzero(own_has_moved)[:, 0], torch.nonzero(~own_has_moved)[:, 0]
        clusters = clusters.clone()
        clusters[full], distances[full] = find_nearest(rows[full], centres, all_indices)
        # compare the other rows with the moved centres; of equally near centres the first wins
        if len(part):
            candidate, distance = find_nearest(rows[part], centres, torch.nonzero(has_moved)[:, 0])
            old, old_distance = clusters[part], distances[part]
            is_first_of_equals = (distance == old_distance) & (candidate < old)
            is_better = (distance < old_distance) | is_first_of_equals
            clusters[part] = torch.where(is_better, candidate, old)
            distances[part] = torch.where(is_better, distance, old_distance)
    return clusters


def find_nearest(rows: Tensor, centres: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest of the centres `among` to each row, and its squared distance, both [N].

    The distance is ‖centre‖² − 2⟨row, centre⟩ + ‖row‖², in blocks that fit in a CPU's cache.
    """
    chosen = centres[among]
    on_cpu = rows.device.type == "cpu"
    most_rows, most_bytes = (1024, DISTANCE_BYTES) if on_cpu else (2**16, DISTANCE_BYTES_GPU)
    block = max(1, min(most_rows, most_bytes // (4 * len(among))))
    squares = (chosen**2).sum(1)
    values, indices = rows.new_empty(len(rows)), among.new_empty(len(rows))
    out = torch.empty(block, len(among), device=rows.device)
    for first in range(0, len(rows), block):
        span = slice(first, first + block)
        piece = rows[span]
        # leave out ‖row‖², which does not change the nearest centre and is added at the end
        distances = torch.addmm(squares, piece, chosen.T, alpha=-2, out=out[: len(piece)])
        values[span], indices[span] = distances.min(1)
    return among[indices], values + (rows**2).sum(1)


def compute_cluster_means(rows: Tensor, clusters: Tensor, k: int) -> Tensor:
    """Return the mean of each cluster, [k, E]; the mean of an empty cluster is 0.

    Rows are summed in a fixed order, unlike a GPU's scattered additions.
    """
    order = clusters.argsort(stable=True)
    sizes = torch.bincount(clusters, minlength=k)
    sums = torch.segment_reduce(rows[order], "sum", lengths=sizes, axis=0)
    return sums / sizes.clamp(min=1)[:, None]


def compute_objective(rows: Tensor, clusters: Tensor, k: int) -> float:
    """Return k-means' objective Σ ‖row − mean of its cluster‖², summed in float64."""
    centres = compute_cluster_means(rows, clusters, k)
    return float((rows - centres[clusters]).double().square().sum())
