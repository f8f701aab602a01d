"""The backbones that five papers and their base losses' authors train, and where weights are."""

from typing import NamedTuple

from trainables.backbones.own_models import BACKBONES
from trainables.backbones.weights import describe_missing_weights
from trainables.config.network import BackboneConfig


class PaperBackbone(NamedTuple):
    """weights: the usual ones, as `backbone.weights` has them; PATH: only a file will do."""

    name: str
    weights: str
    papers: str


PAPER_BACKBONES = (
    PaperBackbone("bn_inception", "PATH", "DDML Tables 1, 2; DetReg; Proxy-Anchor"),
    PaperBackbone("resnet50.tv_in1k", "timm", "DDML Tables 1, 2; IDML Tables 1, 3 to 8; NIR"),
    PaperBackbone("resnet50", "none", "IDML Tables 2 and 10, ImageNet"),
    PaperBackbone("googlenet", "torchvision", "DVML Tables 1 to 4"),
    PaperBackbone("vit_small_patch16_224.augreg_in21k_ft_in1k", "timm", "HypViT in DDML"),
    PaperBackbone("vit_small_patch16_224.dino", "timm", "HypViT in DDML Tables 1, 2"),
    PaperBackbone("deit_small_patch16_224.fb_in1k", "timm", "HypViT; IDML Table 9, from random"),
    PaperBackbone("deit_tiny_patch16_224.fb_in1k", "timm", "IDML Table 9, from random values"),
    PaperBackbone("pyramidnet200", "none", "IDML Table 2, CIFAR"),
    PaperBackbone("tf_efficientnet_lite0", "packaged", "the embedded data's default"),
)


def list_backbones() -> str:
    """Return a text: the papers' backbones, whether their weights are here, and files to fetch."""
    rows = [("backbone.name", "backbone.weights", "weights", "used in")]
    for name, weights, papers in PAPER_BACKBONES:
        if weights == "none":
            state = "trained from random values"
        elif weights == "PATH":
            state = "a file that you give; see below"
        elif describe_missing_weights(BackboneConfig(name=name, weights=weights)) is None:
            state = "here"
        else:
            state = "not here; a run fetches it first"
        rows.append((name, weights, state, papers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *(f"{name}: {BACKBONES[name].FILE}" for name in BACKBONES)])
