"""A trial for which a GPU has not memory enough.

Where an image's features depend on nothing else of its batch, half as many images at once go
through the backbone, and half of those again, until they fit: the loss stays that of the whole
batch, gradients differ by rounding (`backbones/passes.py`), and the result says so. Everywhere else
the trial has failed, with the batch that fits.
"""

from __future__ import annotations

import gc
import logging

import torch

from trainables.backbones.memory import check_parts
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.errors import ConfigError, TrialFailure
from trainables.trial import TrialConfig

LOG = logging.getLogger(__name__)


def divided(config: TrialConfig, seed: int, runtime: Runtime, told: str) -> TrialConfig:
    """The same trial with half as many images at once; its identity is the same.

    Args:
        told: the error by which it ran out of memory; all that it held is free again.

    Raises:
        TrialFailure: in parts it would be another trial, or a single image is too much. The text
            has the largest batch of those halved again and again that fits, if one does.
    """
    backbone, training = config.backbone, config.training
    most = training.micro_batch or training.batch_size
    why = "" if most > 1 else "a single image is too much"
    if backbone.mode == "frozen":
        why = why or "no backbone trains, so that there is no pass to divide"
    if not why:
        try:
            check_parts(backbone.name, config.data.image_size, freeze_bn=backbone.freeze_bn)
        except ConfigError as error:
            why = f"a batch in parts would not be the same trial: {error.found}. {error.remedy}"
    if why:
        whole = backbone.mode == "finetune" and most == training.batch_size > 1
        fits = fitting(config, seed, runtime) if whole else 0
        remedy = f". training.batch_size: {fits} fits" if fits else ""
        raise TrialFailure(f"{_in_short(told)}, with {training.batch_size} a batch: {why}{remedy}")
    parts = (most + 1) // 2
    LOG.warning("%s: it goes on with %d images at once", _in_short(told), parts)
    smaller = training.model_copy(update={"micro_batch": parts})
    return config.model_copy(update={"training": smaller})


def fitting(config: TrialConfig, seed: int, runtime: Runtime) -> int:
    """Images of which a pass forward and back fits: half a batch, a quarter, and so on; 0: not
    one does. What a method computes besides is not counted.

    Args:
        config: without `micro_batch`.
    """
    try:
        trainer = Trainer(config, seed, runtime)
    except torch.OutOfMemoryError:
        return 0
    trainer.network.enter("main", trainer.parameters)
    positions, images = trainer.batches(0)[0], config.training.batch_size // 2
    while images and not _passes(trainer, positions[:images]):
        released()
        images //= 2
    return images


def released() -> None:
    """Give back to the device what nobody holds any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _passes(trainer: Trainer, positions: torch.Tensor) -> bool:
    try:
        images = trainer.inputs.train(positions, trainer.generators["augment"])
        trainer.passes.features(images).sum().backward()  # type: ignore[no-untyped-call]
    except torch.OutOfMemoryError:
        return False
    return True


def _in_short(told: str) -> str:
    return " ".join(told.split())[:120].rstrip(". ")
