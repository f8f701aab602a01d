"""BN-Inception, the backbone of Proxy-Anchor's and DetReg's CUB, Cars and SOP tables.

Ioffe & Szegedy, *Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift*, ICML 2015, Fig. 5, as the Caffe model that everybody's weights come from has it.
Module names are those of the usual weights file, so that it loads without renaming.

Each convolution has a bias and is followed by BatchNorm and ReLU. Pooling rounds sizes up, as
Caffe does. Of an inception block, the maps of its branches are stacked in this order:

    1 × 1   ·   1 × 1 → 3 × 3   ·   1 × 1 → 3 × 3 → 3 × 3   ·   pool → 1 × 1

3c and 4e halve the map: they have no 1 × 1 branch, and their pool branch no convolution.

Shape legend: B batch · S side of the image · s = S / 32, rounded up.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.backbones.own_models import BACKBONES, OwnModel
from trainables.backbones.pixels import Pixels


class Block(NamedTuple):
    """Widths of a block's branches. `one` and `projected` are 0 where the map is halved."""

    one: int
    reduced: int
    three: int
    double_reduced: int
    double: int
    projected: int
    pool: str = "avg"

    @property
    def halves(self) -> bool:
        return self.one == 0

    def list_convolutions(self) -> list[list[tuple[str, int, int, int]]]:
        """List each branch's convolutions, in order: (name, outputs, kernel side, stride)."""
        stride = 2 if self.halves else 1
        return [
            [("1x1", self.one, 1, 1)] if self.one else [],
            [("3x3_reduce", self.reduced, 1, 1), ("3x3", self.three, 3, stride)],
            [
                ("double_3x3_reduce", self.double_reduced, 1, 1),
                ("double_3x3_1", self.double, 3, 1),
                ("double_3x3_2", self.double, 3, stride),
            ],
            [("pool_proj", self.projected, 1, 1)] if self.projected else [],
        ]


# Name → widths, in the order of the forward pass; 192 maps come in.
BLOCKS = {
    "3a": Block(64, 64, 64, 64, 96, 32),
    "3b": Block(64, 64, 96, 64, 96, 64),
    "3c": Block(0, 128, 160, 64, 96, 0, "max"),
    "4a": Block(224, 64, 96, 96, 128, 128),
    "4b": Block(192, 96, 128, 96, 128, 128),
    "4c": Block(160, 128, 160, 128, 160, 128),
    "4d": Block(96, 128, 192, 160, 192, 128),
    "4e": Block(0, 128, 192, 192, 256, 0, "max"),
    "5a": Block(352, 192, 320, 160, 224, 128),
    "5b": Block(352, 192, 320, 192, 224, 128, "max"),
}


@BACKBONES.register("bn_inception")
class BNInception(OwnModel):
    """Images to maps, without the classifier: 10.3 M parameters."""

    PIXELS = Pixels(mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), channels="bgr", maximum=255)
    CLASSIFIER = ("last_linear", "fc")
    FILE = (
        "bn_inception-52deb4733.pth of the package pretrainedmodels, converted from Caffe (45 MB; "
        "by torch.hub's convention its SHA-256 begins with 52deb4733), lies in torch.hub's "
        "cache (~/.cache/torch/hub/checkpoints) of machines that ran Proxy-Anchor's public code. "
        "bn_inception-239d2248.pth and Proxy-NCA's bn_inception_weights_pt04.pt are said to have "
        "the same layout; Inception-v3 is another network"
    )

    def __init__(self) -> None:
        """Add three convolutions, and the inception blocks 3a to 5b, one after another."""
        super().__init__()
        self._add_convolution("conv1_7x7_s2", 3, 64, 7, 2)
        self._add_convolution("conv2_3x3_reduce", 64, 64)
        self._add_convolution("conv2_3x3", 64, 192, 3)
        width = 192
        for name, block in BLOCKS.items():
            width = self._add_block(f"inception_{name}", block, width)

    @classmethod
    def convert(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Flatten the tensors of norms, which files converted from Caffe have as [1, C], to [C]."""
        return {
            name: value[0] if "_bn." in name and value.dim() == 2 and len(value) == 1 else value
            for name, value in tensors.items()
        }

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images [B, 3, S, S] to maps [B, 1024, s, s], s = S/32; blocks may be checkpointed."""
        maps = F.max_pool2d(self._chain(images, "conv1_7x7_s2"), 3, 2, ceil_mode=True)
        maps = self._chain(maps, "conv2_3x3_reduce", "conv2_3x3")
        maps = F.max_pool2d(maps, 3, 2, ceil_mode=True)
        for name, block in BLOCKS.items():
            maps = self._run_block(self._run_branches, f"inception_{name}", block, maps)
        return maps

    def _add_convolution(
        self, name: str, inputs: int, outputs: int, side: int = 1, stride: int = 1
    ) -> None:
        self.add_module(name, nn.Conv2d(inputs, outputs, side, stride, padding=side // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def _add_block(self, name: str, block: Block, width: int) -> int:
        """Add a block's convolutions, for `width` maps that come in; return how many come out."""
        for branch in block.list_convolutions():
            inputs = width
            for suffix, outputs, side, stride in branch:
                self._add_convolution(f"{name}_{suffix}", inputs, outputs, side, stride)
                inputs = outputs
        # pooled maps are projected to fewer, or stay as they came in
        return block.one + block.three + block.double + (block.projected or width)

    def _chain(self, maps: Tensor, *names: str) -> Tensor:
        """Pass maps through convolutions, each with its norm and ReLU."""
        for name in names:
            maps = F.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(maps)))
        return maps

    def _run_branches(self, name: str, block: Block, maps: Tensor) -> Tensor:
        """Return a block's output: the maps of its convolution and pooling branches, stacked."""
        if block.halves:
            pooled = F.max_pool2d(maps, 3, 2, ceil_mode=True)
        elif block.pool == "max":
            pooled = F.max_pool2d(maps, 3, 1, padding=1, ceil_mode=True)
        else:
            pooled = F.avg_pool2d(maps, 3, 1, padding=1, ceil_mode=True)
        names = [[f"{name}_{conv}" for conv, *_ in branch] for branch in block.list_convolutions()]
        *branches, projection = names  # `projection` follows the pooling
        outputs = [self._chain(maps, *branch) for branch in branches if branch]
        return torch.cat([*outputs, self._chain(pooled, *projection)], 1)
