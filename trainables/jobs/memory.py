"""A trial for which a GPU has not memory enough.

Where an image's features depend on nothing else of its batch, half as many images at once go
through the backbone, and half of those again, until they fit: the loss stays that of the whole
batch, gradients differ by rounding (`backbones/passes.py`), and the result says so. Everywhere else
the trial has failed.
"""

from __future__ import annotations

import gc
import logging

import torch

from trainables.backbones.memory import check_parts
from trainables.errors import ConfigError, TrialFailure
from trainables.trial import TrialConfig

LOG = logging.getLogger(__name__)


def halve_batch(config: TrialConfig, message: str) -> TrialConfig:
    """Return the same trial, of the same identity, with half as many images at once.

    Args:
        message: of the error by which it ran out of memory; all that it held is free again.

    Raises:
        TrialFailure: in parts it would be another trial, or a single image is too much.
    """
    backbone, training = config.backbone, config.training
    images = training.micro_batch or training.batch_size
    fault = ""
    if images == 1:
        fault = "a single image is too much"
    elif backbone.mode == "frozen":
        fault = "no backbone trains, so that there is no pass to divide"
    else:
        try:
            check_parts(backbone.name, config.data.image_size, freeze_bn=backbone.freeze_bn)
        except ConfigError as error:
            fault = f"a batch in parts would not be the same trial: {error.message}"
    short = " ".join(message.split())[:120].rstrip(". ")
    if fault:
        raise TrialFailure(
            f"{short}, with {training.batch_size} a batch: {fault}. Lower training.batch_size"
        )
    half = (images + 1) // 2
    LOG.warning("%s: it goes on with %d images at once", short, half)
    return config.model_copy(update={"training": training.model_copy(update={"micro_batch": half})})


def free_memory() -> None:
    """Give back to the device what nobody holds any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
