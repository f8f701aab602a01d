"""How uncertain a model is of images, and which it is most and least certain of.

What a method measures of an image (`Method.measure`): IDML's uncertainty ‖u‖ of images and of their
mixtures (Fig. 6 and 8).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from trainables import streams
from trainables.errors import ConfigError
from trainables.jobs.views.embedded import VIEWS, Embedded


@VIEWS.register("uncertainty")
@torch.inference_mode()
def uncertainty(split: Embedded, *, images: int, ends: int) -> dict[str, Any]:
    """`values`: of each thing measured its values, of up to `images` images that are drawn; by the
    first of them `low` and `high`: pictures with class and value, from the end inwards.

    Raises:
        ConfigError: the method measures nothing.
    """
    method = split.network.method
    if not method.MEASURES:
        raise ConfigError("figures, uncertainty", "a method that has none", "IDML, or one like it")
    subset = split.subset
    order = torch.randperm(len(subset), generator=streams.generator(0, "views.uncertainty"))
    places = order[:images]
    sample = replace(subset, index=subset.index[places], labels=subset.labels[places], queries=None)
    parts: dict[str, list[torch.Tensor]] = {}
    draws = None
    for block in split.inputs.blocks(sample):
        draws = draws or streams.generator(0, "measure", device=block.device)
        for name, found in method.measure(block, split.network.features, draws).items():
            parts.setdefault(name, []).append(found.double().cpu())
    values = {name: torch.cat(blocks) for name, blocks in parts.items()}
    first = next(iter(values.values()))
    ranked = first.argsort(stable=True).tolist()

    def shown(at: int) -> dict[str, Any]:
        place = int(places[at])
        return {
            "picture": split.picture(place),
            "class": split.name(place),
            "value": float(first[at]),
        }

    return {
        "values": {name: [float(f"{x:.5g}") for x in v.tolist()] for name, v in values.items()},
        "low": [shown(at) for at in ranked[:ends]],
        "high": [shown(at) for at in ranked[::-1][:ends]],
    }
