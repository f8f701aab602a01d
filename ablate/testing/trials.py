"""Build small trials of any method with any loss, and labels of batches that fit them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from trainables.losses.base import LOSSES
from trainables.trial import TrialConfig

Component = str | Mapping[str, Any]  # a component's name, or its options including `name`


def list_options(component: Component) -> dict[str, Any]:
    """Return a component as options with a name."""
    return {"name": component} if isinstance(component, str) else dict(component)


def build_trial(method: Component, loss: Component, **changes: Any) -> TrialConfig | str:
    """Build the configuration of a trial, or return why `check` of the method or loss refuses it.

    Args:
        method: the method.
        loss: the loss.
        changes: other sections of the trial.
    """
    config = {"method": list_options(method), "loss": list_options(loss), **changes}
    try:
        return TrialConfig.model_validate(config)
    except ValidationError as error:
        (only,) = error.errors()
        if only["loc"] or only["type"] != "value_error":
            raise
        return str(only["ctx"]["error"])


def build_labels(loss: Component, size: int, classes: int, *, major: bool = False) -> Tensor:
    """Build labels of a batch: classes in turn, or in pairs if the loss or `major` asks for it.

    Shape:
        [size, 1]
    """
    in_pairs = major or LOSSES[list_options(loss)["name"]].batch.layout == "class_major"
    return (torch.arange(size) // (2 if in_pairs else 1) % classes)[:, None]
