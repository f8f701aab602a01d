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


def options(component: Component) -> dict[str, Any]:
    return {"name": component} if isinstance(component, str) else dict(component)


def trial(method: Component, loss: Component, **changes: Any) -> TrialConfig | str:
    """The configuration of a trial of both, or the reason for which one of them refuses it."""
    try:
        return TrialConfig.model_validate(
            {"method": options(method), "loss": options(loss), **changes}
        )
    except ValidationError as error:
        return refusal(error)


def refusal(error: ValidationError) -> str:
    """The reason that a component gave in `check`, in one line; other errors are raised again."""
    (only,) = error.errors()
    if only["loc"] or only["type"] != "value_error":
        raise error
    return str(only["ctx"]["error"])


def labels_for(loss: Component, size: int, classes: int, *, major: bool = False) -> Tensor:
    """[size, 1]: classes in turn, or two of each together where the loss (or `major`) wants it."""
    layout = LOSSES[options(loss)["name"]].batch.layout
    together = major or layout == "class_major"
    places = torch.arange(size) // 2 if together else torch.arange(size)
    return (places % classes)[:, None]
