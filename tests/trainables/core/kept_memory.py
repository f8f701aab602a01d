"""What a step keeps for `backward`, in bytes."""

from __future__ import annotations

import weakref

import torch

from tests.trainables.core import divided_steps as divided
from trainables.backbones.backbone import Backbone

IMAGES = 48


def kept(backbone: Backbone, most: int | None) -> int:
    """Most bytes that autograd keeps at once for `backward`, but parameters and the images, which
    are there anyway: activations."""
    there = (divided.pictures(IMAGES, divided.SIDE), *backbone.parameters())
    places = {tensor.untyped_storage().data_ptr() for tensor in there}
    alive: dict[int, int] = {}
    peak = 0

    class Kept:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

    owners: dict[int, int] = {}

    def gone(place: int) -> None:
        owners[place] -= 1
        if not owners[place]:
            del owners[place], alive[place]

    def pack(tensor: torch.Tensor) -> Kept:
        nonlocal peak
        found, storage = Kept(tensor), tensor.untyped_storage()
        place = storage.data_ptr()
        if place not in places:
            alive[place] = storage.nbytes()
            owners[place] = owners.get(place, 0) + 1
            weakref.finalize(found, gone, place)
        peak = max(peak, sum(alive.values()))
        return found

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda found: found.tensor):
        divided.stepped(backbone, "plain", "proxy_anchor", most, images=IMAGES)
    return peak
