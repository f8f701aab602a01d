"""Describe an embedding space: spectrum, distances, classes, map, proxies, and images in it."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.core.evaluator import measure_images
from trainables.evaluation.structure import (
    compute_class_means,
    compute_singular_shares,
    spectrum,
    squared_distances,
    sum_classes,
)
from trainables.jobs.views.embedded_split import (
    BLOCK,
    VIEWS,
    EmbeddedSplit,
    draw,
    fit_tsne,
    list_points,
)
from trainables.words.errors import ConfigError

BINS = 60
FARTHEST = 2.0  # between rows of unit length
LEAST_POINTS = 4  # of a map
DIRECTIONS = 720  # of the whole circle
ARC_DIRECTIONS = 2001  # between the two proxies


@VIEWS.register("spectrum")
@torch.inference_mode()
def spectrum_of(split: EmbeddedSplit) -> dict[str, Any]:
    """Return the singular values of a split's unit embeddings, and how uneven they are.

    `shares` are the values, descending, over their sum; `spectrum` is ρ, the KL divergence of equal
    shares from these (NIR, Table 3 and Fig. 4).
    """
    shares = compute_singular_shares(split.unit).tolist()
    return {"shares": shares, "spectrum": spectrum(split.unit)}


@VIEWS.register("distances")
@torch.inference_mode()
def distances(split: EmbeddedSplit, *, images: int) -> dict[str, Any]:
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
def affinity(split: EmbeddedSplit, *, classes: int) -> dict[str, Any]:
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
def class_sizes(split: EmbeddedSplit) -> dict[str, Any]:
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
    split: EmbeddedSplit,
    *,
    classes: int,
    points: int,
    pictures: int,
    perplexity: float,
    centred: bool,
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


@VIEWS.register("plane")
@torch.inference_mode()
def plane(split: EmbeddedSplit, *, images: int, level: float) -> dict[str, Any]:
    """Return the plane of the two training classes whose proxies (class vectors) are most alike.

    DDML, Fig. 1b: a plain loss leaves hardly a direction between two training classes in which it
    is unsure, so images of unseen classes fall to one of the two. With unit proxies a, b and e₁ =
    a, e₂ = (b − ⟨a, b⟩ a) / ‖·‖, direction φ of the plane is v(φ) = cos φ e₁ + sin φ e₂, and

        p(φ) = σ(s · (⟨v(φ), a⟩ − ⟨v(φ), b⟩)),   s the loss's logit scale, 1/τ of a softmax

    The plane of an embedding of two dimensions is all of it; that of more dimensions is a section,
    into which images are projected. The paper shows points of a plane instead of images, and its
    data are not public.

    `classes` names these two and the unseen class nearest to them. `points` are the coordinates
    [x, y] of up to `images` images of each of the three, `proxies` the coordinates of the two
    proxies, and `angle` the degrees between these. `sure` is the probability of the first class at
    `DIRECTIONS` angles. `unsure` is the share of the angle between the proxies in which both
    probabilities are below `level`. `dimensions` is the length of an embedding.
    """
    # find the two classes whose proxies are most alike
    loss, train = split.network.method.loss, split.training
    references, scale, geometry = loss.references(), loss.logit_scale, loss.geometry
    width = split.rows.shape[1]
    if (
        references is None
        or scale is None
        or not geometry.is_cosine
        or references.per_class > 1
        or references.vectors.shape[1] != width
    ):
        raise ConfigError(
            "figures, plane",
            "The loss is no softmax over the cosines to one proxy of each class",
            "Choose a cell with such a loss",
        )
    centres = F.normalize(sum_classes(references.vectors, references.labels)).cpu()
    if len(centres) < 2:
        raise ConfigError("figures, plane", "There is one training class", "Train on two or more")
    cosines = (centres @ centres.T).fill_diagonal_(-torch.inf)
    one, two = sorted(divmod(int(cosines.argmax()), len(centres)))  # row, column of the largest
    first, second = centres[one], centres[two]

    # span their plane, and find the unseen class nearest to both
    basis = torch.stack([first, F.normalize(second - (first @ second) * first, dim=0)])
    proxies = centres[[one, two]] @ basis.T
    angle = math.acos(float((first @ second).clamp(-1, 1)))
    sums = sum_classes(split.unit.cpu(), split.subset.labels)
    sizes = torch.bincount(split.subset.labels, minlength=len(sums))[:, None]
    unseen = int((sums / sizes @ centres[[one, two]].T).sum(1).argmax())

    def project(part: EmbeddedSplit, label: int) -> list[list[float]]:
        """Return coordinates of drawn images of a class in the plane."""
        positions = (part.subset.labels == label).nonzero().squeeze(1)
        positions = positions[draw(len(positions), "plane")[:images]].to(part.device)
        return list_points((part.unit[positions].double().cpu() @ basis.T).tolist())

    def compute_certainty(angles: Tensor) -> Tensor:
        """Return the probability of the first class against the second at angles [T], float64."""
        directions = torch.stack([angles.cos(), angles.sin()], 1)
        return (float(scale) * (directions @ (proxies[0] - proxies[1]))).sigmoid()

    # compute the certainty on the whole circle, and between the proxies
    circle = torch.arange(DIRECTIONS, dtype=torch.float64) * (2 * math.pi / DIRECTIONS)
    arc = compute_certainty(torch.linspace(0, angle, ARC_DIRECTIONS, dtype=torch.float64))
    seen = split.model.embed_split("train")
    return {
        "classes": [train.classes[one], train.classes[two], split.subset.classes[unseen]],
        "points": [project(seen, one), project(seen, two), project(split, unseen)],
        "proxies": proxies.tolist(),
        "sure": [round(float(p), 5) for p in compute_certainty(circle)],
        "angle": math.degrees(angle),
        "unsure": float((torch.maximum(arc, 1 - arc) < level).double().mean()),
        "dimensions": width,
    }


@VIEWS.register("uncertainty")
@torch.inference_mode()
def uncertainty(split: EmbeddedSplit, *, images: int, ends: int) -> dict[str, Any]:
    """Return what the method measures of up to `images` drawn images, such as their uncertainty.

    IDML measures the uncertainty ‖u‖ of images and of their mixtures (Fig. 6 and 8).

    `values` has all values of each measurement. `low` and `high` are picture, class and value of
    the `ends` images with the lowest and the highest values of the first measurement.
    """
    # draw images and measure them
    method, subset = split.network.method, split.subset
    if not method.MEASURES:
        raise ConfigError(
            "figures, uncertainty",
            "The method has no uncertainty",
            "Choose a cell of IDML or of a similar method",
        )
    positions = draw(len(subset), "uncertainty")[:images]
    values = measure_images(split.network, split.inputs, subset, positions, split.device)

    # list the images with the lowest and highest values
    first = next(iter(values.values()))
    ranked = first.argsort(stable=True)

    def describe(ranks: Tensor) -> list[dict[str, Any]]:
        pairs = zip(positions[ranks].tolist(), first[ranks].tolist(), strict=True)
        return [split.describe_image(position, value=value) for position, value in pairs]

    return {
        "values": {name: [float(f"{x:.5g}") for x in v.tolist()] for name, v in values.items()},
        "low": describe(ranked[:ends]),
        "high": describe(ranked.flip(0)[:ends]),
    }
