"""What tests over the registries need to know of a component: options, and batches that fit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ablate.testing.methods import build_trial
from trainables.losses.base import LOSSES
from trainables.trial import TrialConfig

# What a loss cannot do without, where its defaults do not say it all.
REQUIRED: dict[str, dict[str, Any]] = {"pml": {"class": "CircleLoss"}}


# Smaller than by default, where that takes time in every trial.
SMALL_METHODS: dict[str, dict[str, Any]] = {"hier": {"ancestors": 16, "draws": 4}}


def loss_options(name: str) -> dict[str, Any]:
    return {"name": name, **REQUIRED.get(name, {})}


def method_options(name: str) -> dict[str, Any]:
    return {"name": name, **SMALL_METHODS.get(name, {})}


def labels_for(loss: str, size: int, classes: int, *, major: bool = False) -> Tensor:
    """[size, 1]: classes in turn, or two of each together where the loss (or `major`) wants it."""
    in_pairs = major or LOSSES[loss].batch.layout == "class_major"
    return (torch.arange(size) // (2 if in_pairs else 1) % classes)[:, None]


def trial(method: dict[str, Any], loss: str, **changes: Any) -> TrialConfig | str:
    """The trial's configuration, or the reason for which it is refused."""
    return build_trial(method, loss_options(loss), **changes)
