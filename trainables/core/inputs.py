"""Where a trial's network gets its inputs: cached features or augmented images.

Shape legend: B batch · F features · S image side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from trainables.backbones.backbone import Backbone
from trainables.data.augment import cut_eval_images, train_images
from trainables.data.features import load_cached_features
from trainables.data.images import Reader
from trainables.data.splits import Splits, Subset
from trainables.machine.group import ALONE, Group
from trainables.trial import TrialConfig

FEATURE_BLOCK = 4096  # rows of cached features embedded at once
IMAGE_BLOCK = 128  # images embedded at once


class Inputs(Protocol):
    """width: F, of the pooled features behind these inputs."""

    width: int

    def prefetch(self, batches: Tensor) -> None:
        """These positions are asked for next, [steps, B] in order; only time depends on it."""

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        """Return inputs of the training images at `positions` ([B], on the CPU), on the device."""

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        """Return inputs of a split, in order, without augmentation: all of them, or of several
        processes this one's blocks. The blocks are the same, and so are the bits of what comes of
        them."""


class Features:
    """Cached features; what is read every epoch, the training and the validation split, stays on
    the device, others are fetched in blocks."""

    def __init__(
        self, config: TrialConfig, splits: Splits, cache: Path, device: torch.device
    ) -> None:
        self.all = load_cached_features(config, cache, device)
        self.device = device
        self.width = int(self.all.shape[1])
        read_often = [splits.train, *([] if splits.val is None else [splits.val])]
        self.resident = [(subset.index, self._gather_rows(subset.index)) for subset in read_often]

    def prefetch(self, batches: Tensor) -> None:
        """Nothing: they are there."""

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        _, rows = self.resident[0]
        # Whole rows: twice as quick on a CPU as by square brackets.
        return rows.index_select(0, positions.to(self.device, non_blocking=True))

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        for index, rows in self.resident:
            if index is subset.index:
                yield from group.local_shard(torch.split(rows, FEATURE_BLOCK))
                return
        for part in group.local_shard(torch.split(subset.index, FEATURE_BLOCK)):
            yield self._gather_rows(part)

    def _gather_rows(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.all[rows.numpy()]).to(self.device)


class Pictures:
    """Images, resident on the device where they fit, else read ahead; augmented there."""

    def __init__(
        self, config: TrialConfig, splits: Splits, backbone: Backbone, device: torch.device
    ) -> None:
        self.augment, self.width = config.data.augment, backbone.features
        self.settings: dict[str, Any] = {
            "size": config.data.image_size,
            "mean": backbone.mean,
            "std": backbone.std,
            "device": device,
        }
        self.reader = Reader(splits.train.images.to(device), device)
        self.rows = splits.train.index

    def prefetch(self, batches: Tensor) -> None:
        self.reader.prefetch(self.rows[batches].unbind())

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        images, rows = self.reader.load_rows(self.rows[positions])
        return train_images(images, rows, config=self.augment, generator=generator, **self.settings)

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        blocks = group.local_shard(torch.split(subset.index, IMAGE_BLOCK))
        self.reader.prefetch(blocks)
        for block in blocks:
            yield cut_eval_images(*self.reader.load_rows(block), **self.settings)
