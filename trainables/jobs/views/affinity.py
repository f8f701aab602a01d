"""Which classes a model holds for alike: cosines between their proxies (DDML's supplement)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from trainables.evaluation.structure import sum_classes
from trainables.jobs.views.embedded import VIEWS, Embedded, draw


@VIEWS.register("affinity")
@torch.inference_mode()
def affinity(split: Embedded, *, classes: int) -> dict[str, Any]:
    """Return `cosines` [C × C] of up to `classes` training classes that are drawn, in an order that
    sets like ones side by side (leaves of average linkage), with their names, `classes`; `mean`: of
    two classes. `of`: "proxies", of several a class the mean of unit ones, or "class means", of
    unit embeddings, where the loss has none."""
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
    apart = (1 - cosines).fill_diagonal_(0).numpy()
    order = leaves_list(linkage(squareform(apart, checks=False), "average"))
    cosines = cosines[order][:, order]
    off = cosines[~torch.eye(len(cosines), dtype=torch.bool)]
    return {
        "classes": [split.subset.classes[int(drawn[place])] for place in order],
        "of_classes": len(centres),
        "cosines": [[round(value, 4) for value in row] for row in cosines.tolist()],
        "mean": float(off.mean()),
        "of": "class means" if references is None else "proxies",
    }
