"""Models that timm lacks and papers need, under names of their own, and the registry of them.

    @BACKBONES.register("mine")
    class Mine(OwnModel): ...

Other packages join by an entry point in `ablate.backbones`.
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainables.backbones.pixels import Pixels
from trainables.words.registry import Registry

BACKBONES: "Registry[type[OwnModel]]" = Registry(
    "backbones",
    "trainables.backbones.bn_inception",
    "trainables.backbones.googlenet",
    "trainables.backbones.pyramidnet",
)


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

    def __init__(self) -> None:
        super().__init__()
        self.grad_checkpointing = False

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
