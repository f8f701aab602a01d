"""NMI of a k-means clustering with the classes.

k-means: k = classes of the evaluated split, Lloyd's iterations from k distinct items drawn at
random, one start, 20 iterations, all from `seed`. faiss does it where it is installed; otherwise
torch, by the same settings (their starts differ, so the values differ within the noise of the
start). Rows are brought to unit length first, as papers cluster cosine embeddings.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

ITERATIONS = 20
DISTANCE_BYTES = 64 * 2**20


def nmi(embeddings: Tensor, labels: Tensor, *, seed: int) -> float:
    """Normalised mutual information, arithmetic mean: 2·I(c, y)/(H(c) + H(y)), in [0, 1]."""
    rows = torch.nn.functional.normalize(embeddings.float(), dim=1)
    k = len(torch.unique(labels))
    clusters = (kmeans_faiss if _faiss_imports() else kmeans_torch)(rows, k, seed=seed)
    return mutual_information(clusters, labels)


@cache
def _faiss_imports() -> bool:
    """Whether faiss is there and loads; one that is there and does not load is logged."""
    if find_spec("faiss") is None:
        return False
    try:
        import faiss  # noqa: F401
    except ImportError as error:
        logger.warning("faiss does not load (%s): k-means runs in torch", error)
        return False
    return True


def mutual_information(a: Tensor, b: Tensor) -> float:
    """NMI of two labellings [N]; 1 if each is a single group (they tell the same: nothing)."""
    a, b = (torch.unique(x, return_inverse=True)[1] for x in (a.cpu(), b.cpu()))
    rows, columns = int(a.max()) + 1, int(b.max()) + 1
    joint = torch.bincount(a * columns + b, minlength=rows * columns).double() / len(a)
    table = joint.view(rows, columns)
    of_a, of_b = table.sum(1), table.sum(0)
    # I = H(a) + H(b) − H(a, b)
    entropies = [-torch.special.xlogy(p, p).sum() for p in (of_a, of_b, joint)]
    total = float(entropies[0] + entropies[1])
    if total == 0:
        return 1.0
    return min(1.0, max(0.0, 2 * float(entropies[0] + entropies[1] - entropies[2]) / total))


def kmeans_faiss(rows: Tensor, k: int, *, seed: int) -> Tensor:
    """Clusters [N] int64 by faiss on the CPU."""
    import faiss

    data = rows.cpu().numpy()
    # All items take part, as in the torch path: faiss would draw 256 per centre.
    clustering = faiss.Kmeans(
        data.shape[1],
        k,
        niter=ITERATIONS,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=len(data),
    )
    clustering.train(data)
    _, clusters = clustering.index.search(data, 1)
    return torch.from_numpy(clusters[:, 0])


def kmeans_torch(rows: Tensor, k: int, *, seed: int) -> Tensor:
    """Clusters [N] int64 by torch, on the device of `rows`.

    A centre that loses all its items takes over the item farthest from its own centre.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randperm(len(rows), generator=generator)[:k].to(rows.device)
    centres = rows[start].clone()
    clusters, distances = _assign(rows, centres)
    for _ in range(ITERATIONS):
        sizes = torch.bincount(clusters, minlength=k)
        sums = torch.zeros_like(centres).index_add_(0, clusters, rows)
        centres = sums / sizes.clamp(min=1)[:, None]
        empty = torch.nonzero(sizes == 0)[:, 0]
        if len(empty):
            centres[empty] = rows[distances.argsort(descending=True, stable=True)[: len(empty)]]
        moved, distances = _assign(rows, centres)
        if torch.equal(moved, clusters):
            break
        clusters = moved
    return clusters


def _assign(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Nearest centre of each row and the squared distance to it, in blocks."""
    block = max(1, DISTANCE_BYTES // (4 * len(centres)))
    squares = (centres**2).sum(1)
    found = [(squares - 2 * part @ centres.T).min(1) for part in torch.split(rows, block)]
    nearest = torch.cat([part.indices for part in found])
    return nearest, torch.cat([part.values for part in found]) + (rows**2).sum(1)
