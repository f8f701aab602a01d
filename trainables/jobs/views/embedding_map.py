"""The embedding space on a plane: t-SNE of unit embeddings (van der Maaten & Hinton, 2008).

By scikit-learn, started from principal components, so that two runs on one machine give the same
map. Distances between groups and their sizes mean little in it; which images are neighbours does.
"""

from __future__ import annotations

from typing import Any

import torch

from trainables.errors import ConfigError
from trainables.evaluation.structure import compute_class_means
from trainables.jobs.views.embedded import VIEWS, Embedded, draw, fit_tsne

LEAST = 4  # points


@VIEWS.register("embedding_map")
@torch.inference_mode()
def embedding_map(
    split: Embedded,
    *,
    classes: int,
    points: int,
    pictures: int,
    perplexity: float,
    centred: bool,
) -> dict[str, Any]:
    """Return `x`, `y`: of up to `points` images of `classes` classes that are drawn; `label`: of
    each the position of its class in `classes`; `pictures`: [position, picture] of some.

    Args:
        centred: of each embedding the mean of its class's is taken away: what is left is how the
            images of a class differ, whichever class it is (DVML, Fig. 1).

    Raises:
        ConfigError: too few images.
    """
    total = len(split.subset.classes)
    chosen = draw(total, "map.classes")[:classes]
    candidates = torch.isin(split.subset.labels, chosen).nonzero().squeeze(1)
    positions = candidates[draw(len(candidates), "map")[:points]]
    if len(positions) < LEAST:
        raise ConfigError(
            "figures, embedding_map", f"{len(positions)} images are too few: it takes {LEAST}"
        )
    rows = split.unit[positions.to(split.device)].double().cpu()
    if centred:
        _, classes_of = torch.unique(split.subset.labels[positions], return_inverse=True)
        rows = rows - compute_class_means(rows, classes_of)[classes_of]
    plane = fit_tsne(rows, min(perplexity, (len(positions) - 1) / 3))
    return {
        "x": [x for x, _ in plane],
        "y": [y for _, y in plane],
        **split.list_classes(positions),
        "of_classes": total,
        "pictures": [
            [number, split.encode_thumbnail(position)]
            for number, position in enumerate(positions[:pictures].tolist())
        ],
    }
