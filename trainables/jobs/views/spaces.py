"""Numbers of an embedding space: its spectrum, its distances, what is alike, what is found."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from trainables.errors import ConfigError
from trainables.evaluation.structure import (
    compute_singular_shares,
    spectrum,
    squared_distances,
    sum_classes,
)
from trainables.jobs.views.embedded import BLOCK, VIEWS, Embedded, draw

BINS = 60
FARTHEST = 2.0  # between rows of unit length


@VIEWS.register("spectrum")
@torch.inference_mode()
def spectrum_of(split: Embedded) -> dict[str, Any]:
    """Return `shares`: singular values of the unit embeddings over their sum, descending;
    `spectrum`: ρ (NIR, Table 3 and Fig. 4)."""
    shares = compute_singular_shares(split.unit).tolist()
    return {"shares": shares, "spectrum": spectrum(split.unit)}


@VIEWS.register("distances")
@torch.inference_mode()
def distances(split: Embedded, *, images: int) -> dict[str, Any]:
    """Return Euclidean distances of unit embeddings over all pairs of up to `images` images of
    whole classes that are drawn: of pairs of one class, `intra`, and of two, `inter`, as shares of
    such pairs in bins whose borders are `edges`; their `means`; and `overlap` = Σ_bins min(intra,
    inter), 1 where the two cannot be told apart.

    Raises:
        ConfigError: no two images of a class, or one class alone.
    """
    order = draw(len(split.subset.classes), "distances")
    sizes = torch.bincount(split.subset.labels, minlength=len(order))[order]
    chosen = order[: max(2, int((sizes.cumsum(0) <= images).sum()))]
    positions = torch.isin(split.subset.labels, chosen).nonzero().squeeze(1).to(split.device)
    rows, labels = split.unit[positions], split.labels[positions]
    edges = torch.linspace(0, FARTHEST, BINS + 1, dtype=torch.float64)
    counts = torch.zeros(2, BINS, dtype=torch.float64)
    sums = [0.0, 0.0]
    for first in range(0, len(rows), 1024):
        block = slice(first, first + 1024)
        far = squared_distances(rows[block], rows).clamp(0, FARTHEST**2).sqrt().double()
        later = torch.ones_like(far, dtype=torch.bool).triu(first + 1)
        same = labels[block][:, None] == labels[None]
        for kind, mask in enumerate((same & later, ~same & later)):
            values = far[mask].cpu()
            counts[kind] += torch.histogram(values, edges).hist
            sums[kind] += float(values.sum())
    pairs = counts.sum(1)
    if not pairs.all():
        raise ConfigError(
            "figures, distances",
            f"it takes pairs of one class and of two, and there are {int(pairs[0])} and "
            f"{int(pairs[1])}",
        )
    shares = counts / pairs[:, None]
    return {
        "edges": edges.tolist(),
        "intra": shares[0].tolist(),
        "inter": shares[1].tolist(),
        "means": [sums[0] / float(pairs[0]), sums[1] / float(pairs[1])],
        "overlap": float(shares.amin(0).sum()),
        "images": len(positions),
        "classes": len(chosen),
    }


@VIEWS.register("affinity")
@torch.inference_mode()
def affinity(split: Embedded, *, classes: int) -> dict[str, Any]:
    """Return which classes a model holds for alike (DDML's supplement): `cosines` [C × C] between
    the proxies of up to `classes` training classes that are drawn, in an order that sets like ones
    side by side (leaves of average linkage), with their names, `classes`; `mean`: of two classes.
    `of`: "proxies", of several a class the mean of unit ones, or "class means", of unit embeddings,
    where the loss has none."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    references = split.network.method.loss.references()
    if references is not None:
        rows, labels = F.normalize(references.vectors, dim=1), references.labels
    else:
        rows, labels = split.unit, split.labels
    centres = F.normalize(sum_classes(rows, labels), dim=1).cpu()
    drawn = draw(len(centres), "affinity")[:classes]
    cosines = (centres[drawn] @ centres[drawn].T).clamp(-1, 1)
    cosines = (cosines + cosines.T) / 2
    far = (1 - cosines).fill_diagonal_(0).numpy()
    order = leaves_list(linkage(squareform(far, checks=False), "average"))
    cosines = cosines[order][:, order]
    off_diagonal = cosines[~torch.eye(len(cosines), dtype=torch.bool)]
    return {
        "classes": [split.subset.classes[int(drawn[position])] for position in order],
        "of_classes": len(centres),
        "cosines": [[round(value, 4) for value in row] for row in cosines.tolist()],
        "mean": float(off_diagonal.mean()),
        "of": "class means" if references is None else "proxies",
    }


@VIEWS.register("class_sizes")
@torch.inference_mode()
def class_sizes(split: Embedded) -> dict[str, Any]:
    """Return how well images of each class with an answerable query are found: `classes`, names;
    `sizes`, images of it in this split; `trained`, images of it that the model was trained on, 0 of
    a class that it never saw; `recalls`, the share of its images whose nearest other one is of it.

    DDML's authors tell of class-imbalanced data in their supplement, which is not public; this is
    measured where sizes differ by themselves, or by `data.split.imbalance`.
    """
    subset, train = split.subset, split.training
    total = len(subset.classes)
    right, answerable = torch.zeros(2, total, dtype=torch.int64)
    for block in torch.split(torch.arange(split.query_count), BLOCK):
        scores, same = split.score_queries(block.to(split.device))
        has_answer = same.any(1)
        hit = same.gather(1, scores.argmax(1, keepdim=True)).squeeze(1)
        labels = subset.labels[block]
        answerable += torch.bincount(labels[has_answer.cpu()], minlength=total)
        right += torch.bincount(labels[(hit & has_answer).cpu()], minlength=total)
    sizes = torch.bincount(subset.labels, minlength=total).tolist()
    counts = torch.bincount(train.labels, minlength=len(train.classes)).tolist()
    trained = dict(zip(train.classes, counts, strict=True))
    shown = answerable.nonzero().squeeze(1).tolist()
    return {
        "classes": [subset.classes[label] for label in shown],
        "of_classes": total,
        "sizes": [sizes[label] for label in shown],
        "trained": [trained.get(subset.classes[label], 0) for label in shown],
        "recalls": [round(float(right[n]) / float(answerable[n]), 6) for n in shown],
    }
