"""What can be read of a trained model for a figure, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainables.jobs.views.affinity import affinity
from trainables.jobs.views.class_sizes import class_sizes
from trainables.jobs.views.embedded import Reader
from trainables.jobs.views.embedding_map import embedding_map
from trainables.jobs.views.gallery import gallery
from trainables.jobs.views.grad_cam import grad_cam
from trainables.jobs.views.plane import plane
from trainables.jobs.views.request import View
from trainables.jobs.views.single_step import single_step
from trainables.jobs.views.spaces import distances, spectrum_of
from trainables.jobs.views.uncertainty import uncertainty

KINDS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "affinity": affinity,
    "class_sizes": class_sizes,
    "distances": distances,
    "embedding_map": embedding_map,
    "gallery": gallery,
    "grad_cam": grad_cam,
    "plane": plane,
    "single_step": single_step,
    "spectrum": spectrum_of,
    "uncertainty": uncertainty,
}


def read(model: Reader, view: View) -> dict[str, Any]:
    """What a view's file holds: its kind and options, the size of the split, and what was found.

    Raises:
        ConfigError: the trial has no such split, or the split or the method nothing to be read.
    """
    options = dict(view.options)
    split = model.split(options.pop("split"))
    about = {"kind": view.kind, "options": dict(view.options), "split_images": len(split.subset)}
    return about | KINDS[view.kind](split, **options)
