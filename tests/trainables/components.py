"""What tests over the registries need to know of a component: options, and batches that fit."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from trainables.config import TrialConfig
from trainables.losses.base import LOSSES

# What a loss cannot do without, where its defaults do not say it all.
REQUIRED: dict[str, dict[str, Any]] = {"pml": {"class": "CircleLoss"}}

# Losses that are not ours to keep static: data-dependent shapes of another library.
FOREIGN = {name for name in LOSSES if LOSSES[name].takes == "embeddings"}


def loss_options(name: str) -> dict[str, Any]:
    return {"name": name, **REQUIRED.get(name, {})}


def labels_for(loss: str, size: int, classes: int, *, major: bool = False) -> Tensor:
    """[size, 1]: classes in turn, or two of each together where the loss (or `major`) wants it."""
    together = major or LOSSES[loss].batch.layout == "class_major"
    places = torch.arange(size) // 2 if together else torch.arange(size)
    return (places % classes)[:, None]


def refusal(error: ValidationError) -> str:
    """The reason that a component gave in `check`, in one line; other errors are raised again."""
    (only,) = error.errors()
    if only["loc"] or only["type"] != "value_error":
        raise error
    return str(only["ctx"]["error"])


def trial(method: dict[str, Any], loss: str, **changes: Any) -> TrialConfig | str:
    """The trial's configuration, or the reason for which it is refused."""
    try:
        return TrialConfig(method=method, loss=loss_options(loss), **changes)
    except ValidationError as error:
        return refusal(error)
