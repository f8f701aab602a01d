"""PyramidNet-200 with bottlenecks, widening by α = 240, for 32 × 32 images: IDML's CIFAR tables.

Han, Kim & Kim, *Deep Pyramidal Residual Networks*, CVPR 2017, Sections 3.1 to 3.3 and Table 1.
Of n = (200 − 2) / 9 = 22 blocks in each of three stages, block k of all N = 66 has the width

    D_k = ⌊D_{k−1} + α / N⌉,    D_0 = 16     (rounded where it is used, Eq. 2),

and gives 4 D_k maps. A block is BN · 1×1 · BN · ReLU · 3×3 · BN · ReLU · 1×1 · BN, added to a
shortcut without parameters: what it lacks in maps is zeros (Section 3.2), its map is averaged by
two where the stage halves it.

Shape legend: B batch · S side of the image · s = S / 4, rounded up.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.backbones.own_models import BACKBONES, OwnModel
from trainables.backbones.pixels import IMAGENET

DEPTH, WIDENING, FIRST, EXPANSION = 200, 240, 16, 4


class Bottleneck(nn.Module):
    """inputs → 4 · width maps."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        """Build BN · 1×1 · BN · 3×3 · BN · 1×1 · BN; a stride of 2 halves the map."""
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, EXPANSION * width, 1, bias=False)
        self.bn4 = nn.BatchNorm2d(EXPANSION * width)
        self.stride = stride

    def forward(self, maps: Tensor) -> Tensor:
        """Add the input, averaged by `stride` and padded with zero maps, to the convolved maps."""
        out: Tensor = self.conv1(self.bn1(maps))
        out = self.conv2(F.relu(self.bn2(out)))
        out = self.bn4(self.conv3(F.relu(self.bn3(out))))
        if self.stride > 1:
            maps = F.avg_pool2d(maps, self.stride, self.stride, ceil_mode=True)
        return out + F.pad(maps, (0, 0, 0, 0, 0, out.shape[1] - maps.shape[1]))


@BACKBONES.register("pyramidnet200")
class PyramidNet200(OwnModel):
    """Images to maps, without the classifier: 26.7 M parameters."""

    PIXELS = IMAGENET
    CLASSIFIER = ("fc",)
    FILE = "IDML trains it on CIFAR from random values: weights: none"

    def __init__(self) -> None:
        """Build three stages of 22 blocks, each block wider by 240/66 than the one before it."""
        super().__init__()
        blocks = (DEPTH - 2) // 9
        self.conv1 = nn.Conv2d(3, FIRST, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(FIRST)
        inputs, width = FIRST, float(FIRST)
        for stage in (1, 2, 3):
            layers = []
            for block in range(blocks):
                width += WIDENING / (3 * blocks)
                stride = 2 if stage > 1 and block == 0 else 1
                layers.append(Bottleneck(inputs, round(width), stride))
                inputs = EXPANSION * round(width)
            self.add_module(f"layer{stage}", nn.Sequential(*layers))
        self.bn_final = nn.BatchNorm2d(inputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al. 2015, mode fan_out
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, 0, math.sqrt(2 / fan_out))

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images [B, 3, S, S] to maps [B, 1024, s, s], s = S/4; blocks may be checkpointed."""
        maps = self.bn1(self.conv1(images))
        for stage in (1, 2, 3):
            for block in getattr(self, f"layer{stage}"):
                maps = self._run_block(block, maps)
        return F.relu(self.bn_final(maps))
