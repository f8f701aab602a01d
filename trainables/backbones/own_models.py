"""Models that timm lacks and papers need, under names of their own, and the registry of them.

    @BACKBONES.register("mine")
    class Mine(OwnModel): ...

Other packages join by an entry point in `ablate.backbones`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainables.backbones.pixels import Pixels
from trainables.config.registry import Registry

BACKBONES: Registry[type[OwnModel]] = Registry(
    "backbones",
    "trainables.backbones.bn_inception",
    "trainables.backbones.googlenet",
    "trainables.backbones.pyramidnet",
)


@dataclass(frozen=True)
class WeightsFile:
    """What is known of the usual weights file of a model.

    Facts about files that are not offered here come from the source of the package pretrainedmodels
    0.7.4 (its module `bninception` names the file, the order of channels and the range of pixels,
    and its model has the tensors of ours and gives the same numbers), from torchvision's own
    record, and from the public code of the losses. A digest that nobody could check here is not
    written down: by torch.hub's convention the digits in a file's name are the first of its
    SHA-256.

    file: its name. digest: the first digits of its SHA-256. size: in words. keys: how its tensors
    are named. found: where such files usually are. others: files that look alike, and what to do.
    """

    file: str
    digest: str
    size: str
    keys: str
    found: str
    others: str


class OwnModel(nn.Module):
    """Images to maps, without a classifier.

    PIXELS: what its usual weights expect. CLASSIFIER: name prefixes of the tensors that a file may
    hold beyond the model's. FILE: its usual weights file. IN_TORCHVISION: whether torchvision has
    weights of it.
    """

    PIXELS: ClassVar[Pixels]
    CLASSIFIER: ClassVar[tuple[str, ...]]
    FILE: ClassVar[WeightsFile]
    IN_TORCHVISION: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.grad_checkpointing = False

    @classmethod
    def build(cls) -> Self:
        """Return it with initial values from torch's global generator."""
        return cls()

    @classmethod
    def convert(cls, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return a weights file's tensors as the model has them."""
        return tensors

    @classmethod
    def download(cls) -> dict[str, Tensor]:
        """Return torchvision's tensors, fetched where torch.hub's cache lacks them.

        Raises:
            ConfigError: they cannot be had.
        """
        raise NotImplementedError

    @classmethod
    def hub_file(cls) -> str:
        """Return the name under which torch.hub keeps torchvision's file."""
        raise NotImplementedError

    def forward_features(self, images: Tensor) -> Tensor:
        """[B, 3, S, S] → [B, C, s, s]."""
        raise NotImplementedError

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """As timm's: whether `backward` computes the inside of each block anew."""
        self.grad_checkpointing = enable

    def forward_head(self, maps: Tensor, pre_logits: bool = True) -> Tensor:
        """[B, C, s, s] → [B, C], the global average."""
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def _run_block(self, block: Callable[..., Tensor], *given: object) -> Tensor:
        if not self.grad_checkpointing:
            return block(*given)
        maps: Tensor = checkpoint(block, *given, use_reentrant=False)
        return maps
