"""Small trials of any method with any loss, and batches that fit them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from trainables.losses.base import LOSSES
from trainables.trial import TrialConfig

Component = str | Mapping[str, Any]  # its name, or its options with the name among them


def list_options(component: Component) -> dict[str, Any]:
    return {"name": component} if isinstance(component, str) else dict(component)


def build_trial(method: Component, loss: Component, **changes: Any) -> TrialConfig | str:
    """Return the configuration of a trial of both, or the reason for which `check` of one of them
    refuses it; other errors are raised."""
    config = {"method": list_options(method), "loss": list_options(loss), **changes}
    try:
        return TrialConfig.model_validate(config)
    except ValidationError as error:
        (only,) = error.errors()
        if only["loc"] or only["type"] != "value_error":
            raise
        return str(only["ctx"]["error"])


def build_labels(loss: Component, size: int, classes: int, *, major: bool = False) -> Tensor:
    """Return [size, 1]: classes in turn, or two of each together where the loss or `major` wants
    it."""
    together = major or LOSSES[list_options(loss)["name"]].batch.layout == "class_major"
    return (torch.arange(size) // (2 if together else 1) % classes)[:, None]
