"""Load the inputs of a trial's network: cached features or augmented images.

Shape legend: B batch · F features · S image side.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.backbones.backbone import Backbone
from trainables.data.augment import cut_eval_images, train_images
from trainables.data.features import load_cached_features
from trainables.data.images import ImageReader
from trainables.data.splits import Splits, Subset
from trainables.machine.group import ALONE, Group
from trainables.trial import TrialConfig

FEATURE_BLOCK = 4096  # rows of cached features embedded at once
IMAGE_BLOCK = 128  # images embedded at once


class Features:
    """Load cached features, of width F.

    The training and validation splits stay on the device, because each epoch reads them. Other
    splits are copied there block by block.
    """

    def __init__(
        self, config: TrialConfig, splits: Splits, cache: Path, device: torch.device
    ) -> None:
        self.all = load_cached_features(config, cache, device)  # memory-mapped, of all images
        self.device = device
        self.width = int(self.all.shape[1])
        read_often = [splits.train, *([] if splits.val is None else [splits.val])]
        # (image indices, features on the device) of each such split, the training split first
        self.resident = [(subset.index, self._gather_rows(subset.index)) for subset in read_often]

    def prefetch(self, batches: Tensor) -> None:
        """Do nothing: the features are in memory."""

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        """Return [B, F] on the device for the training images at `positions` ([B], on the CPU)."""
        _, rows = self.resident[0]
        # index_select is twice as fast on a CPU as indexing by square brackets
        return rows.index_select(0, positions.to(self.device, non_blocking=True))

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        """Yield this rank's blocks [N, F] of a split, in order.

        Block borders do not depend on the number of ranks, so embeddings are equal bit by bit.
        """
        for index, rows in self.resident:
            if index is subset.index:  # this split's features are on the device already
                yield from group.local_shard(torch.split(rows, FEATURE_BLOCK))
                return
        for part in group.local_shard(torch.split(subset.index, FEATURE_BLOCK)):
            yield self._gather_rows(part)

    def _gather_rows(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.all[rows.numpy()]).to(self.device)


class Pictures:
    """Load images, from the device's memory if they fit or else ahead of use, and augment them.

    `width` is that of the backbone's pooled features.
    """

    def __init__(
        self, config: TrialConfig, splits: Splits, backbone: Backbone, device: torch.device
    ) -> None:
        self.augment, self.width = config.data.augment, backbone.features
        self.settings: dict[str, Any] = {"mean": backbone.mean, "std": backbone.std}
        self.settings |= {"size": config.data.image_size, "device": device}
        self.reader = ImageReader(splits.train.images.to(device), device)
        self.rows = splits.train.index  # of the training images among all images

    def prefetch(self, batches: Tensor) -> None:
        """Read ahead the batches at these positions, [steps, B]; this changes only the speed."""
        self.reader.prefetch(self.rows[batches].unbind())

    def load_training_inputs(self, positions: Tensor, generator: torch.Generator) -> Tensor:
        """Return [B, 3, S, S], augmented, of the training images at `positions` ([B])."""
        images, rows = self.reader.load_rows(self.rows[positions])
        return train_images(images, rows, config=self.augment, generator=generator, **self.settings)

    def iterate_blocks(self, subset: Subset, group: Group = ALONE) -> Iterator[Tensor]:
        """Yield this rank's blocks [N, 3, S, S] of a split's images, in order, not augmented."""
        blocks = group.local_shard(torch.split(subset.index, IMAGE_BLOCK))
        self.reader.prefetch(blocks)
        for block in blocks:
            yield cut_eval_images(*self.reader.load_rows(block), **self.settings)


Inputs = Features | Pictures
