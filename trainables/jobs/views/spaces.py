"""Numbers of an embedding space that are more than one: its spectrum, its distances."""

from __future__ import annotations

from typing import Any

import torch

from trainables.errors import ConfigError
from trainables.evaluation.structure import compute_singular_shares, spectrum, squared_distances
from trainables.jobs.views.embedded import VIEWS, Embedded, draw

BINS = 60
FARTHEST = 2.0  # between rows of unit length


@VIEWS.register("spectrum")
@torch.inference_mode()
def spectrum_of(split: Embedded) -> dict[str, Any]:
    """Return `shares`: singular values of the unit embeddings over their sum, descending;
    `spectrum`: ρ (NIR, Table 3 and Fig. 4)."""
    return {
        "shares": compute_singular_shares(split.unit).tolist(),
        "spectrum": spectrum(split.unit),
    }


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
    places = torch.isin(split.subset.labels, chosen).nonzero().squeeze(1).to(split.device)
    rows, labels = split.unit[places], split.labels[places]
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
        "images": len(places),
        "classes": len(chosen),
    }
