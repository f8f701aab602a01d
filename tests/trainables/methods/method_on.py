"""A method on a loss, in float64, with the seed that all tests of methods start from."""

from __future__ import annotations

from typing import Any

from trainables import streams
from trainables.config.network import EmbeddingConfig
from trainables.losses.base import Loss
from trainables.methods.base import METHODS


def method_on(
    name: str, loss: Loss, *, features: int, dim: int, classes: int, **options: Any
) -> Any:
    with streams.seeded(0, "init", "method"):
        return METHODS[name](
            METHODS[name].Config(**options),
            features=features,
            embedding=EmbeddingConfig(dim=dim),
            loss=loss,
            classes=classes,
        ).double()
