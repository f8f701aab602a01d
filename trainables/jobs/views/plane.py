"""The plane of two classes' proxies: how sure a model is of either, and where images lie in it.

DDML, Fig. 1b: between two training classes a plain loss leaves hardly a direction in which it is
unsure, so that images of unseen classes fall to one of the two. With unit proxies a, b and e₁ = a,
e₂ = (b − ⟨a, b⟩ a) / ‖·‖, direction φ of the plane is v(φ) = cos φ e₁ + sin φ e₂, and

    p(φ) = σ(s · (⟨v(φ), a⟩ − ⟨v(φ), b⟩)),   s the loss's logit scale, 1/τ of a softmax

`unsure` is the share of the directions from a to b, the shorter way, in which max(p, 1 − p) is
below a level. Of an embedding of two dimensions the plane is all there is (the paper's is of points
in a plane, which are no images, and its data are not public); of more it is a section, and images
are projected into it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.errors import ConfigError
from trainables.evaluation.structure import sum_classes
from trainables.jobs.views.embedded import VIEWS, Embedded, draw, list_points

DIRECTIONS = 720  # of the whole circle
FINE = 2001  # between the two proxies


@VIEWS.register("plane")
@torch.inference_mode()
def plane(split: Embedded, *, images: int, level: float) -> dict[str, Any]:
    """Of the two training classes whose proxies are most alike: `classes`, their names and that of
    the unseen class nearest to both; `points`: of up to `images` images of each, coordinates [x, y]
    of unit embeddings in the plane; `proxies`, both; `sure`: p at `DIRECTIONS` angles from 0;
    `angle` between the proxies, in degrees, and `unsure`.

    Raises:
        ConfigError: a loss without proxies, or whose scores are no logits; fewer than two classes.
    """
    loss, train = split.network.method.loss, split.training
    references, scale, geometry = loss.references(), loss.logit_scale, loss.geometry
    if (
        references is None
        or scale is None
        or not (geometry.kind == "cosine" or (geometry.kind == "dot" and geometry.normalize))
        or references.per_class > 1
        or split.rows.shape[1] != references.vectors.shape[1]
    ):
        raise ConfigError(
            "figures, plane", "the loss must be a softmax over the cosines to a proxy of each class"
        )
    centres = F.normalize(sum_classes(references.vectors, references.labels)).cpu()
    if len(centres) < 2:
        raise ConfigError("figures, plane", "it takes two training classes, and there is one")
    cosines = (centres @ centres.T).fill_diagonal_(-torch.inf)
    one, two = sorted(divmod(int(cosines.argmax()), len(centres)))
    first, second = centres[one], centres[two]
    basis = torch.stack([first, F.normalize(second - (first @ second) * first, dim=0)])
    sums = sum_classes(split.unit.cpu(), split.subset.labels)
    sizes = torch.bincount(split.subset.labels, minlength=len(sums))[:, None]
    unseen = int((sums / sizes @ centres[[one, two]].T).sum(1).argmax())
    proxies = centres[[one, two]] @ basis.T
    angle = math.acos(float((first @ second).clamp(-1, 1)))

    def project(part: Embedded, label: int) -> list[list[float]]:
        positions = (part.subset.labels == label).nonzero().squeeze(1)
        positions = positions[draw(len(positions), "plane")[:images]].to(part.device)
        return list_points((part.unit[positions].double().cpu() @ basis.T).tolist())

    def sure(turns: Tensor) -> Tensor:
        """Return [T] float64: p of the first class against the second, in these directions."""
        directions = torch.stack([turns.cos(), turns.sin()], 1)
        return (float(scale) * (directions @ (proxies[0] - proxies[1]))).sigmoid()

    turns = torch.arange(DIRECTIONS, dtype=torch.float64) * (2 * math.pi / DIRECTIONS)
    between = sure(torch.linspace(0, angle, FINE, dtype=torch.float64))
    seen = split.model.embed_split("train")
    return {
        "classes": [train.classes[one], train.classes[two], split.subset.classes[unseen]],
        "points": [project(seen, one), project(seen, two), project(split, unseen)],
        "proxies": proxies.tolist(),
        "sure": [round(float(p), 5) for p in sure(turns)],
        "angle": math.degrees(angle),
        "unsure": float((torch.maximum(between, 1 - between) < level).double().mean()),
        "dimensions": split.rows.shape[1],
    }
