"""The backbones that the five papers and their base losses' authors train."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.backbones.absent import absent
from trainables.config.network import BackboneConfig


@dataclass(frozen=True)
class OfPapers:
    """weights: the usual ones, as `backbone.weights` has them; "file": only a path will do."""

    name: str
    weights: str
    used: str

    def here(self) -> str:
        """Whether the weights are on this machine, in words."""
        if self.weights == "none":
            return "trained from random values"
        if self.weights == "file":
            return "a file of yours, with backbone.weights_sha256"
        missing = absent(BackboneConfig(name=self.name, weights=self.weights))
        return "here" if missing is None else "not here; a run fetches it first"


OF_PAPERS = (
    OfPapers("bn_inception", "file", "DDML Tables 1, 2; DetReg; Proxy-Anchor"),
    OfPapers("resnet50.tv_in1k", "timm", "DDML Tables 1, 2; IDML Tables 1, 3 to 8; NIR"),
    OfPapers("resnet50", "none", "IDML Tables 2 and 10, ImageNet"),
    OfPapers("googlenet", "torchvision", "DVML Tables 1 to 4"),
    OfPapers("vit_small_patch16_224.augreg_in21k", "timm", "HypViT in DDML Tables 1, 2"),
    OfPapers("vit_small_patch16_224.dino", "timm", "HypViT in DDML Tables 1, 2"),
    OfPapers("deit_small_patch16_224.fb_in1k", "timm", "HypViT; IDML Table 9, from random values"),
    OfPapers("deit_tiny_patch16_224.fb_in1k", "timm", "IDML Table 9, from random values"),
    OfPapers("pyramidnet200", "none", "IDML Table 2, CIFAR"),
    OfPapers("tf_efficientnet_lite0", "packaged", "the embedded data's default"),
)


def listing() -> str:
    """A line per backbone: name, weights, whether they are here, and who uses it."""
    rows = [("backbone.name", "backbone.weights", "weights", "used in")]
    rows += [
        (each.name, "PATH" if each.weights == "file" else each.weights, each.here(), each.used)
        for each in OF_PAPERS
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )
