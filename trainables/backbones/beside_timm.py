"""Models that timm lacks and papers need, under names of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from trainables.backbones.pixels import IMAGENET, Pixels

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Model:
    """
    make: builds it without its classifier, with values from torch's global generator.
    pixels: what its usual weights expect.
    classifier: name prefixes of the tensors that a file may hold beyond the model's.
    of_file: a file's tensors as the model has them.
    torchvision: fetches torchvision's weights. file: under which name torch.hub keeps them.
    """

    make: Callable[[], nn.Module]
    pixels: Pixels
    classifier: tuple[str, ...]
    of_file: Callable[[Tensors], Tensors] = dict
    torchvision: Callable[[], Tensors] | None = None
    file: Callable[[], str] | None = None


# Each is imported when it is asked for: torchvision alone takes a second.
def _bn_inception() -> nn.Module:
    from trainables.backbones.bn_inception import BNInception

    return BNInception()


def _bn_inceptions_file(tensors: Tensors) -> Tensors:
    from trainables.backbones.bn_inception import of_file

    return of_file(tensors)


def _googlenet() -> nn.Module:
    from trainables.backbones.googlenet import googlenet

    return googlenet()


def _googlenets_weights() -> Tensors:
    from trainables.backbones.googlenet import downloaded

    return downloaded()


def _googlenets_file() -> str:
    from trainables.backbones.googlenet import weights_file

    return weights_file()


def _pyramidnet200() -> nn.Module:
    from trainables.backbones.pyramidnet import PyramidNet200

    return PyramidNet200()


MODELS = {
    "bn_inception": Model(
        _bn_inception,
        Pixels(mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), channels="bgr", maximum=255),
        ("last_linear", "fc"),
        of_file=_bn_inceptions_file,
    ),
    "googlenet": Model(
        _googlenet,
        Pixels(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        ("fc", "aux1", "aux2"),
        torchvision=_googlenets_weights,
        file=_googlenets_file,
    ),
    "pyramidnet200": Model(_pyramidnet200, IMAGENET, ("fc",)),
}
