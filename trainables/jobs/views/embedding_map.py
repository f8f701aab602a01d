"""Map embeddings to a plane by t-SNE of unit embeddings (van der Maaten & Hinton, 2008).

scikit-learn starts it from principal components, so two runs on one machine give the same map. Read
in it which images are neighbours; distances between groups and the groups' sizes mean little.
"""

from __future__ import annotations

from typing import Any

import torch

from trainables.errors import ConfigError
from trainables.evaluation.structure import compute_class_means
from trainables.jobs.views.embedded import VIEWS, Embedded, draw, fit_tsne

LEAST_POINTS = 4


@VIEWS.register("embedding_map")
@torch.inference_mode()
def embedding_map(
    split: Embedded, *, classes: int, points: int, pictures: int, perplexity: float, centred: bool
) -> dict[str, Any]:
    """Return the map of up to `points` images of `classes` drawn classes.

    `x` and `y` are its points, `label` each one's index in `classes`, and `pictures` has [index,
    picture] of some. If `centred`, the mean of its class is subtracted from each embedding, which
    leaves how the images of a class differ (DVML, Fig. 1).
    """
    total = len(split.subset.classes)
    drawn_classes = draw(total, "map.classes")[:classes]
    candidates = torch.isin(split.subset.labels, drawn_classes).nonzero().squeeze(1)
    positions = candidates[draw(len(candidates), "map")[:points]]
    if len(positions) < LEAST_POINTS:
        fault = f"{len(positions)} images are too few, because it takes {LEAST_POINTS}"
        raise ConfigError("figures, embedding_map", f"{fault}. Raise classes or points.")
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
        "of_classes": total,
        "pictures": [[number, thumbnail] for number, thumbnail in enumerate(thumbnails)],
    }
