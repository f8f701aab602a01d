"""The embedding space on a plane: t-SNE of unit embeddings (van der Maaten & Hinton, 2008).

By scikit-learn, started from principal components, so that two runs on one machine give the same
map. Distances between groups and their sizes mean little in it; which images are neighbours does.
"""

from __future__ import annotations

from typing import Any

import torch

from trainables import streams
from trainables.errors import ConfigError
from trainables.evaluation.structure import centres
from trainables.jobs.views.embedded import VIEWS, Embedded, fit_tsne

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
    """`x`, `y`: of up to `points` images of `classes` classes that are drawn; `label`: of each the
    place of its class in `classes`; `pictures`: [place, picture] of some.

    Args:
        centred: of each embedding the mean of its class's is taken away: what is left is how the
            images of a class differ, whichever class it is (DVML, Fig. 1).

    Raises:
        ConfigError: too few images.
    """
    total = len(split.subset.classes)
    chosen = torch.randperm(total, generator=streams.generator(0, "views.map.classes"))[:classes]
    of_these = torch.isin(split.subset.labels, chosen).nonzero().squeeze(1)
    order = torch.randperm(len(of_these), generator=streams.generator(0, "views.map"))[:points]
    places = of_these[order]
    if len(places) < LEAST:
        raise ConfigError("figures, embedding_map", f"{len(places)} images", f"at least {LEAST}")
    rows = split.unit[places.to(split.device)].double().cpu()
    if centred:
        _, classes_of = torch.unique(split.subset.labels[places], return_inverse=True)
        rows = rows - centres(rows, classes_of)[classes_of]
    made = fit_tsne(rows, min(perplexity, (len(places) - 1) / 3))
    names = sorted({split.name(place) for place in places.tolist()})
    number = {name: at for at, name in enumerate(names)}
    return {
        "x": [x for x, _ in made],
        "y": [y for _, y in made],
        "label": [number[split.name(place)] for place in places.tolist()],
        "classes": names,
        "of_classes": total,
        "pictures": [[at, split.picture(p)] for at, p in enumerate(places[:pictures].tolist())],
    }
