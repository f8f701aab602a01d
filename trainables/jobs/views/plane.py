"""Show the plane of two classes' proxies: how sure a model is of either, and where images lie.

DDML, Fig. 1b: a plain loss leaves hardly a direction between two training classes in which it is
unsure, so images of unseen classes fall to one of the two. With unit proxies a, b and e₁ = a,
e₂ = (b − ⟨a, b⟩ a) / ‖·‖, direction φ of the plane is v(φ) = cos φ e₁ + sin φ e₂, and

    p(φ) = σ(s · (⟨v(φ), a⟩ − ⟨v(φ), b⟩)),   s the loss's logit scale, 1/τ of a softmax

`unsure` is the share of the directions from a to b, the shorter way, in which max(p, 1 − p) is
below a level. The plane of an embedding of two dimensions is all of it; that of more dimensions is
a section, into which images are projected. The paper shows points of a plane instead of images, and
its data are not public.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.evaluation.structure import sum_classes
from trainables.jobs.views.embedded import VIEWS, Embedded, draw, list_points
from trainables.words.errors import ConfigError

DIRECTIONS = 720  # of the whole circle
ARC_DIRECTIONS = 2001  # between the two proxies


@VIEWS.register("plane")
@torch.inference_mode()
def plane(split: Embedded, *, images: int, level: float) -> dict[str, Any]:
    """Return the plane of the two training classes whose proxies (class vectors) are most alike.

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

    def project(part: Embedded, label: int) -> list[list[float]]:
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
