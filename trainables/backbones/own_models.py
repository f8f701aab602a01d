"""Models that timm lacks and papers need, under names of their own, and the registry of them.

    @BACKBONES.register("mine")
    class Mine(OwnModel): ...

Other packages join by an entry point in `ablate.backbones`.

Shape legend: B batch · S side of the image · s side of the last map, rounded up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainables.words.registry import Registry

Triple = tuple[float, float, float]
BACKBONES: "Registry[type[OwnModel]]" = Registry(
    "backbones",
    "trainables.backbones.own_models",
)


@dataclass(frozen=True)
class Pixels:
    """State mean and std of pixels in 0 … `maximum`, in the order of `channels`."""

    mean: Triple
    std: Triple
    channels: Literal["rgb", "bgr"] = "rgb"
    maximum: Literal[1, 255] = 1

    def to_rgb_statistics(self) -> tuple[Triple, Triple]:
        """Return mean and std as of pixels in [0, 1], in the order red, green, blue."""
        step = -1 if self.channels == "bgr" else 1
        mean, std = (
            tuple(value / self.maximum for value in values[::step])
            for values in (self.mean, self.std)
        )
        return mean, std  # type: ignore[return-value]


IMAGENET = Pixels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class OwnModel(nn.Module):
    """Images to maps, without a classifier; initial values come from torch's global generator.

    PIXELS: what its usual weights expect. CLASSIFIER: name prefixes of the tensors that a file may
    hold beyond the model's. FILE: which weights file it needs, in words. TORCHVISION: the class of
    torchvision.models that names its weights; empty: there are none.
    """

    PIXELS: ClassVar[Pixels]
    CLASSIFIER: ClassVar[tuple[str, ...]]
    FILE: ClassVar[str]
    TORCHVISION: ClassVar[str] = ""
    grad_checkpointing = False

    @classmethod
    def convert(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a weights file's tensors as the model has them."""
        return tensors

    def forward_features(self, images: Tensor) -> Tensor:
        """Map [B, 3, S, S] → [B, C, s, s]."""
        raise NotImplementedError

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """As timm's: whether `backward` computes the inside of each block anew."""
        self.grad_checkpointing = enable

    def forward_head(self, maps: Tensor, pre_logits: bool = True) -> Tensor:
        """Map [B, C, s, s] → [B, C], the global average."""
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def _run_block(self, block: Callable[..., Tensor], *inputs: object) -> Tensor:
        if not self.grad_checkpointing:
            return block(*inputs)
        maps: Tensor = checkpoint(block, *inputs, use_reentrant=False)
        return maps


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
    """BN-Inception, the backbone of Proxy-Anchor's and DetReg's CUB, Cars and SOP tables.

    10.3 M parameters. Module names are those of the usual weights file, so that it loads without
    renaming. Each convolution has a bias and is followed by BatchNorm and ReLU. Pooling rounds
    sizes up, as Caffe does. Of an inception block, the maps of its branches are stacked in this
    order:

        1 × 1   ·   1 × 1 → 3 × 3   ·   1 × 1 → 3 × 3 → 3 × 3   ·   pool → 1 × 1

    3c and 4e halve the map: they have no 1 × 1 branch, and their pool branch no convolution.

    References:
        Ioffe & Szegedy, *Batch Normalization: Accelerating Deep Network Training by Reducing
        Internal Covariate Shift*, ICML 2015, Fig. 5, as the Caffe model that everybody's weights
        come from has it.
    """

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


_LAYERS = (
    *("conv1", "maxpool1", "conv2", "conv3", "maxpool2"),
    *("inception3a", "inception3b", "maxpool3"),
    *("inception4a", "inception4b", "inception4c", "inception4d", "inception4e", "maxpool4"),
    *("inception5a", "inception5b"),
)


@BACKBONES.register("googlenet")
class GoogLeNet(OwnModel):
    """GoogLeNet, the backbone of DVML's tables: torchvision's, without its classifiers.

    5.6 M parameters, under torchvision's names. torchvision's variant has BatchNorm after each
    convolution. Its weights were trained on pixels of mean and deviation 0.5 (torchvision turns
    ImageNet's usual normalisation into that one inside the model; here it is stated instead).

    References:
        Szegedy et al., *Going Deeper with Convolutions*, CVPR 2015.
    """

    PIXELS = Pixels(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    CLASSIFIER = ("fc", "aux1", "aux2")
    TORCHVISION = "GoogLeNet_Weights"
    FILE = (
        "googlenet-1378be20.pth (49.7 MB) is torchvision's, which weights: torchvision fetches; "
        "without a connection copy it to torch.hub's cache (~/.cache/torch/hub/checkpoints). The "
        "GoogLeNet of Caffe has no BatchNorm: it is another network"
    )

    def __init__(self) -> None:
        """Take the layers of torchvision's GoogLeNet, and leave out its classifiers."""
        from torchvision.models import googlenet  # imported here, because it takes a second

        super().__init__()
        source = googlenet(weights=None, aux_logits=False, init_weights=True)
        for name in _LAYERS:
            self.add_module(name, source.get_submodule(name))

    def forward_features(self, images: Tensor) -> Tensor:
        """Map images [B, 3, S, S] to maps [B, 1024, s, s], s = S/32; may checkpoint the blocks."""
        for name in _LAYERS:
            layer = self.get_submodule(name)
            is_block = name.startswith("inception")
            images = self._run_block(layer, images) if is_block else layer(images)
        return images


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
    """PyramidNet-200 with bottlenecks, widening by α = 240, for 32 × 32: IDML's CIFAR tables.

    26.7 M parameters. Of n = (200 − 2) / 9 = 22 blocks in each of three stages, block k of all
    N = 66 has the width

        D_k = ⌊D_{k−1} + α / N⌉,    D_0 = 16     (rounded where it is used, Eq. 2),

    and gives 4 D_k maps. A block is BN · 1×1 · BN · ReLU · 3×3 · BN · ReLU · 1×1 · BN, added to a
    shortcut without parameters: what it lacks in maps is zeros (Section 3.2), its map is averaged
    by two where the stage halves it.

    References:
        Han, Kim & Kim, *Deep Pyramidal Residual Networks*, CVPR 2017, Sections 3.1 to 3.3, Table 1.
    """

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
