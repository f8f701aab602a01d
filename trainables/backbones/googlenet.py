"""GoogLeNet, the backbone of DVML's tables: torchvision's, without its classifiers.

Szegedy et al., *Going Deeper with Convolutions*, CVPR 2015; torchvision's variant has BatchNorm
after each convolution. Its weights were trained on pixels of mean and deviation 0.5 (torchvision
turns ImageNet's usual normalisation into that one inside the model; here it is stated instead).
"""

from torch import Tensor

from trainables.backbones.own_models import BACKBONES, OwnModel
from trainables.backbones.pixels import Pixels

_LAYERS = (
    *("conv1", "maxpool1", "conv2", "conv3", "maxpool2"),
    *("inception3a", "inception3b", "maxpool3"),
    *("inception4a", "inception4b", "inception4c", "inception4d", "inception4e", "maxpool4"),
    *("inception5a", "inception5b"),
)


@BACKBONES.register("googlenet")
class GoogLeNet(OwnModel):
    """Images to maps: 5.6 M parameters. Module names are torchvision's."""

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
