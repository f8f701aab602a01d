"""GoogLeNet, the backbone of DVML's tables: torchvision's, without its classifiers.

Szegedy et al., *Going Deeper with Convolutions*, CVPR 2015; torchvision's variant has BatchNorm
after each convolution. Its weights were trained on pixels of mean and deviation 0.5 (torchvision
turns ImageNet's usual normalisation into that one inside the model; here it is stated instead).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainables.errors import ConfigError

FEATURES = 1024
_LAYERS = (
    *("conv1", "maxpool1", "conv2", "conv3", "maxpool2"),
    *("inception3a", "inception3b", "maxpool3"),
    *("inception4a", "inception4b", "inception4c", "inception4d", "inception4e", "maxpool4"),
    *("inception5a", "inception5b"),
)


class GoogLeNet(nn.Module):
    """Images to maps: 5.6 M parameters. Module names are torchvision's."""

    def __init__(self, whole: nn.Module) -> None:
        """whole: torchvision's model."""
        super().__init__()
        self.grad_checkpointing = False
        for name in _LAYERS:
            self.add_module(name, whole.get_submodule(name))

    def forward_features(self, images: Tensor) -> Tensor:
        """[B, 3, S, S] → [B, 1024, s, s], s = S / 32 rounded up."""
        for name in _LAYERS:
            layer = self.get_submodule(name)
            if self.grad_checkpointing and name.startswith("inception"):
                images = checkpoint(layer, images, use_reentrant=False)
            else:
                images = layer(images)
        return images

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """As timm's: whether `backward` computes the inside of each block anew."""
        self.grad_checkpointing = enable

    def forward_head(self, maps: Tensor, pre_logits: bool = True) -> Tensor:
        """[B, 1024, s, s] → [B, 1024], the global average."""
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


def googlenet() -> GoogLeNet:
    """With initial values from torch's global generator."""
    from torchvision.models import googlenet as torchvisions

    return GoogLeNet(torchvisions(weights=None, aux_logits=False, init_weights=True))


def weights_file() -> str:
    """The name of torchvision's file, under which torch.hub keeps it."""
    from torchvision.models import GoogLeNet_Weights

    return str(GoogLeNet_Weights.DEFAULT.url).rpartition("/")[2]


def downloaded() -> dict[str, Tensor]:
    """The tensors of torchvision's own weights, fetched where its cache lacks them.

    Raises:
        ConfigError: they cannot be had.
    """
    from torchvision.models import GoogLeNet_Weights

    try:
        tensors: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            GoogLeNet_Weights.DEFAULT.url, map_location="cpu", check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            "backbone.weights",
            f"torchvision, but googlenet could not be fetched ({reason})",
            "weights that torchvision can download or has in its cache",
            "Check the connection, or give weights: none, or the path of a file",
        ) from error
    return tensors
