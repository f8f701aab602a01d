"""How uncertain a model is of images, and which it is most and least certain of.

What a method measures of an image (`Method.measure`): IDML's uncertainty ‖u‖ of images and of their
mixtures (Fig. 6 and 8).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainables import streams
from trainables.errors import ConfigError
from trainables.jobs.views.embedded import VIEWS, Embedded, draw


@VIEWS.register("uncertainty")
@torch.inference_mode()
def uncertainty(split: Embedded, *, images: int, ends: int) -> dict[str, Any]:
    """Return `values`: of each thing measured its values, of up to `images` images that are drawn;
    by the first of them `low` and `high`: pictures with class and value, from the end inwards.

    Raises:
        ConfigError: the method measures nothing.
    """
    method, subset = split.network.method, split.subset
    if not method.MEASURES:
        raise ConfigError(
            "figures, uncertainty", "the method has no uncertainty. Take IDML, or one like it."
        )
    positions = draw(len(subset), "uncertainty")[:images]
    sample = replace(
        subset, index=subset.index[positions], labels=subset.labels[positions], queries=None
    )
    draws = streams.create_generator(0, "measure", device=split.device)
    blocks = [
        method.measure(x, split.network.features, draws)
        for x in split.inputs.iterate_blocks(sample)
    ]
    values = {
        name: torch.cat([block[name].double().cpu() for block in blocks]) for name in blocks[0]
    }
    first = next(iter(values.values()))
    ranked = first.argsort(stable=True)

    def show(numbers: Tensor) -> list[dict[str, Any]]:
        pairs = zip(positions[numbers].tolist(), first[numbers].tolist(), strict=True)
        return [split.show(position, value=value) for position, value in pairs]

    return {
        "values": {name: [float(f"{x:.5g}") for x in v.tolist()] for name, v in values.items()},
        "low": show(ranked[:ends]),
        "high": show(ranked.flip(0)[:ends]),
    }
