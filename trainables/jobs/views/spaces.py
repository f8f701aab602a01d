"""Describe an embedding space: spectrum, distances, similar classes, recall by class size, map."""

from typing import Any

import torch
import torch.nn.functional as F

from trainables.evaluation.structure import (
    compute_class_means,
    compute_singular_shares,
    spectrum,
    squared_distances,
    sum_classes,
)
from trainables.jobs.views.embedded import BLOCK, VIEWS, Embedded, draw, fit_tsne
from trainables.words.errors import ConfigError

BINS = 60
FARTHEST = 2.0  # between rows of unit length
LEAST_POINTS = 4  # of a map


@VIEWS.register("spectrum")
@torch.inference_mode()
def spectrum_of(split: Embedded) -> dict[str, Any]:
    """Return the singular values of a split's unit embeddings, and how uneven they are.

    `shares` are the values, descending, over their sum; `spectrum` is ρ, the KL divergence of equal
    shares from these (NIR, Table 3 and Fig. 4).
    """
    shares = compute_singular_shares(split.unit).tolist()
    return {"shares": shares, "spectrum": spectrum(split.unit)}


@VIEWS.register("distances")
@torch.inference_mode()
def distances(split: Embedded, *, images: int) -> dict[str, Any]:
    """Return the distribution of Euclidean distances between unit embeddings of drawn classes.

    Two classes are drawn, and more up to `images` images in all. `intra` and `inter` are shares of
    the pairs within a class, and across classes, in bins with the borders `edges`; `means` their
    mean distances; `overlap` = Σ_bins min(intra, inter), which is 1 for two equal distributions.
    """
    # draw two classes, and more while all have no more than `images` images
    order = draw(len(split.subset.classes), "distances")
    sizes = torch.bincount(split.subset.labels, minlength=len(order))[order]
    classes = order[: max(2, int((sizes.cumsum(0) <= images).sum()))]
    positions = torch.isin(split.subset.labels, classes).nonzero().squeeze(1).to(split.device)
    rows, labels = split.unit[positions], split.labels[positions]

    # count the pairs of images by distance, within a class and across classes
    edges = torch.linspace(0, FARTHEST, BINS + 1, dtype=torch.float64)
    counts = torch.zeros(2, BINS, dtype=torch.float64)
    sums = [0.0, 0.0]
    for first in range(0, len(rows), 1024):
        block = slice(first, first + 1024)
        gaps = squared_distances(rows[block], rows).clamp(0, FARTHEST**2).sqrt().double()
        later = torch.ones_like(gaps, dtype=torch.bool).triu(first + 1)  # each pair once
        same = labels[block][:, None] == labels[None]
        for kind, mask in enumerate((same & later, ~same & later)):
            values = gaps[mask].cpu()
            counts[kind] += torch.histogram(values, edges).hist
            sums[kind] += float(values.sum())
    pairs = counts.sum(1)
    if not pairs.all():
        raise ConfigError(
            "figures, distances",
            f"There are {int(pairs[0])} pairs within classes and {int(pairs[1])} across classes, "
            "and both numbers must be above 0",
            "Raise images, or give a larger split",
        )
    shares = counts / pairs[:, None]
    return {
        "edges": edges.tolist(),
        "intra": shares[0].tolist(),
        "inter": shares[1].tolist(),
        "means": [sums[0] / float(pairs[0]), sums[1] / float(pairs[1])],
        "overlap": float(shares.amin(0).sum()),
        "images": len(positions),
        "classes": len(classes),
    }


@VIEWS.register("affinity")
@torch.inference_mode()
def affinity(split: Embedded, *, classes: int) -> dict[str, Any]:
    """Return the `cosines` [C × C] between proxies of drawn training classes (DDML's supplement).

    A proxy is a vector by which a loss represents a class; several of a class are averaged. Without
    proxies, class means of unit embeddings are compared; `of` says which. `classes` are names, with
    similar classes side by side (by average linkage). `mean` is the mean cosine between classes.
    """
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
    gaps = (1 - cosines).fill_diagonal_(0).numpy()
    order = leaves_list(linkage(squareform(gaps, checks=False), "average"))
    cosines = cosines[order][:, order]
    off_diagonal = cosines[~torch.eye(len(cosines), dtype=torch.bool)]
    return {
        "classes": [split.subset.classes[int(drawn[position])] for position in order],
        "of_classes": len(centres),  # from which `classes` were drawn
        "cosines": [[round(value, 4) for value in row] for row in cosines.tolist()],
        "mean": float(off_diagonal.mean()),
        "of": "class means" if references is None else "proxies",
    }


@VIEWS.register("class_sizes")
@torch.inference_mode()
def class_sizes(split: Embedded) -> dict[str, Any]:
    """Return the recall at 1 of each class beside its size.

    Classes whose queries have no other image of the class to find are left out. `classes` are
    names, `sizes` numbers of images in this split, `trained` numbers of training images, 0 for an
    unseen class, and `recalls` shares of queries whose nearest image is of their class.
    """
    subset, train = split.subset, split.training
    total = len(subset.classes)
    right, answerable = torch.zeros(2, total, dtype=torch.int64)
    for block in torch.split(torch.arange(split.query_count), BLOCK):
        scores, hits = split.score_queries(block.to(split.device))
        has_answer = hits.any(1)
        hit = hits.gather(1, scores.argmax(1, keepdim=True)).squeeze(1)
        labels = subset.labels[block]
        answerable += torch.bincount(labels[has_answer.cpu()], minlength=total)
        right += torch.bincount(labels[(hit & has_answer).cpu()], minlength=total)
    sizes = torch.bincount(subset.labels, minlength=total).tolist()
    counts = torch.bincount(train.labels, minlength=len(train.classes)).tolist()
    trained = dict(zip(train.classes, counts, strict=True))
    labels_with_answer = answerable.nonzero().squeeze(1).tolist()
    names = [subset.classes[label] for label in labels_with_answer]
    return {
        "classes": names,
        "of_classes": total,  # with those that are left out
        "sizes": [sizes[label] for label in labels_with_answer],
        "trained": [trained.get(name, 0) for name in names],
        "recalls": [round(float(right[n]) / float(answerable[n]), 6) for n in labels_with_answer],
    }


@VIEWS.register("embedding_map")
@torch.inference_mode()
def embedding_map(
    split: Embedded, *, classes: int, points: int, pictures: int, perplexity: float, centred: bool
) -> dict[str, Any]:
    """Return a t-SNE map of up to `points` images of `classes` drawn classes.

    `x` and `y` are the points, `label` each one's index in `classes`, and `pictures` has [index,
    picture] of the first `pictures` points. If `centred`, the mean of its class is subtracted from
    each embedding, so that only differences within classes are left (DVML, Fig. 1).

    The map shows which images are neighbours; distances and sizes of groups mean little.

    References:
        van der Maaten and Hinton, "Visualizing Data using t-SNE", JMLR 2008.
    """
    total = len(split.subset.classes)
    drawn_classes = draw(total, "map.classes")[:classes]
    candidates = torch.isin(split.subset.labels, drawn_classes).nonzero().squeeze(1)
    positions = candidates[draw(len(candidates), "map")[:points]]
    if len(positions) < LEAST_POINTS:
        raise ConfigError(
            "figures, embedding_map",
            f"{len(positions)} images are too few for a map, which needs {LEAST_POINTS}",
            "Raise classes or points",
        )
    rows = split.unit[positions.to(split.device)].double().cpu()
    if centred:
        _, class_index = torch.unique(split.subset.labels[positions], return_inverse=True)
        rows = rows - compute_class_means(rows, class_index)[class_index]
    plane = fit_tsne(rows, min(perplexity, (len(positions) - 1) / 3))
    thumbnails = map(split.encode_thumbnail, positions[:pictures].tolist())
    return {
        "x": [x for x, _ in plane],
        "y": [y for _, y in plane],
        **split.list_classes(positions),
        "of_classes": total,  # from which `classes` were drawn
        "pictures": [[number, thumbnail] for number, thumbnail in enumerate(thumbnails)],
    }
