"""Agreement of a clustering with the classes: NMI, AMI, pairwise F1.

All three come from the contingency table n_ij = items in cluster i and class j, kept sparse: at
SOP's 11,316 clusters the dense one takes a GiB. The clustering is `kmeans`, k = classes of the
evaluated split; rows are brought to unit length first, as papers cluster cosine embeddings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Contingency:
    """cells: [T] the n_ij > 0; clusters, classes: their sums over j and i. int64, on the CPU."""

    cells: Tensor
    clusters: Tensor
    classes: Tensor


def contingency(clusters: Tensor, classes: Tensor) -> Contingency:
    """Of two labellings [N], by any integers."""
    a, b = (torch.unique(x, return_inverse=True)[1] for x in (clusters.cpu(), classes.cpu()))
    cells = torch.unique(a * (int(b.max()) + 1) + b, return_counts=True)[1]
    return Contingency(cells, torch.bincount(a), torch.bincount(b))


def entropy(sizes: Tensor) -> float:
    """−Σ p log p, p = sizes / Σ sizes, in nats."""
    p = sizes.double() / int(sizes.sum())
    return float(-torch.special.xlogy(p, p).sum())


def nmi(table: Contingency) -> float:
    """Normalised mutual information 2·I/(H(clusters) + H(classes)), in [0, 1] (arithmetic mean, as
    scikit-learn's default); 1 if each is a single group (they tell the same: nothing)."""
    of_a, of_b = entropy(table.clusters), entropy(table.classes)
    if of_a + of_b == 0:
        return 1.0
    # I = H(a) + H(b) − H(a, b)
    return min(1.0, max(0.0, 2 * (of_a + of_b - entropy(table.cells)) / (of_a + of_b)))


def ami(table: Contingency) -> float:
    """Adjusted mutual information (I − E)/((H(clusters) + H(classes))/2 − E), at most 1 and near 0
    by chance; E is I expected of random groups of the same sizes (Vinh et al., JMLR 2010)."""
    of_a, of_b = entropy(table.clusters), entropy(table.classes)
    groups = (len(table.clusters), len(table.classes))
    # Both one group, or both all singletons: nothing to adjust, they agree.
    if groups in ((1, 1), (int(table.cells.sum()),) * 2):
        return 1.0
    chance = expected_information(table)
    above = (of_a + of_b) / 2 - chance
    above = math.copysign(max(abs(above), np.finfo(float).eps), above)
    return (of_a + of_b - entropy(table.cells) - chance) / above


def expected_information(table: Contingency) -> float:
    """E[I] in nats under the hypergeometric model.

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
            log_p = (
                gammaln(size + 1)
                + gammaln(b + 1)
                + gammaln(total - size + 1)
                + gammaln(total - b + 1)
                - gammaln(total + 1)
                - gammaln(n + 1)
                - gammaln(size - n + 1)
                - gammaln(b - n + 1)
                - gammaln(total - size - b + n + 1)
            )
            share = n / total * (math.log(total) + np.log(n) - log_a - math.log(b))
            sums.append(int(times_a) * int(times) * float((share * np.exp(log_p)).sum()))
    return math.fsum(sums)


def f1(table: Contingency) -> float:
    """Pairwise F1 = 2·TP/(2·TP + FP + FN) over unordered pairs of items: positive = of one
    cluster, true = of one class. Exact integers. 1 if no pair is together in either."""
    together = pairs(table.cells)
    said = pairs(table.clusters) + pairs(table.classes)
    return 2 * together / said if said else 1.0


def pairs(sizes: Tensor) -> int:
    return int((sizes * (sizes - 1) // 2).sum())
