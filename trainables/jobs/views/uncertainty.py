"""Show what a method measures of images (`Method.measure`), and the images with extreme values.

IDML measures the uncertainty ‖u‖ of images and of their mixtures (Fig. 6 and 8).
"""

from typing import Any

import torch
from torch import Tensor

from trainables.core.evaluator import measure_images
from trainables.jobs.views.embedded import VIEWS, Embedded, draw
from trainables.words.errors import ConfigError


@VIEWS.register("uncertainty")
@torch.inference_mode()
def uncertainty(split: Embedded, *, images: int, ends: int) -> dict[str, Any]:
    """Return what the method measures of up to `images` drawn images, such as their uncertainty.

    `values` has all values of each measurement. `low` and `high` are picture, class and value of
    the `ends` images with the lowest and the highest values of the first measurement.
    """
    # draw images and measure them
    method, subset = split.network.method, split.subset
    if not method.MEASURES:
        raise ConfigError(
            "figures, uncertainty",
            "The method has no uncertainty",
            "Choose a cell of IDML or of a similar method",
        )
    positions = draw(len(subset), "uncertainty")[:images]
    values = measure_images(split.network, split.inputs, subset, positions, split.device)

    # list the images with the lowest and highest values
    first = next(iter(values.values()))
    ranked = first.argsort(stable=True)

    def describe(ranks: Tensor) -> list[dict[str, Any]]:
        pairs = zip(positions[ranks].tolist(), first[ranks].tolist(), strict=True)
        return [split.describe_image(position, value=value) for position, value in pairs]

    return {
        "values": {name: [float(f"{x:.5g}") for x in v.tolist()] for name, v in values.items()},
        "low": describe(ranked[:ends]),
        "high": describe(ranked.flip(0)[:ends]),
    }
