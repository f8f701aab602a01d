"""Backbones: any timm model, and those that timm lacks, from images to pooled features.

Shape legend: B batch · S side of the image · C, H, W of a feature map · F features.
"""

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainables.backbones.frozen_norms import fold_frozen_norms
from trainables.backbones.own_models import BACKBONES, Pixels
from trainables.backbones.timm_models import (
    build_on_meta,
    check_name,
    create_model,
    download_model,
    explain_model_errors,
    import_timm,
)
from trainables.backbones.weights import (
    PACKAGED_MEAN_STD,
    ROUTES,
    check_route,
    download_torchvision,
    has_file,
    load_tensors_into,
    load_weights,
)
from trainables.config.network import BackboneConfig
from trainables.machine.devices import to_full_precision
from trainables.streams import seed_global_generator
from trainables.words.errors import ConfigError

LOG = logging.getLogger(__name__)
REVISION = 1  # raise by hand when pooling or a weight mapping changes numbers
Tokens = Literal["class", "mean", "both"]
Pooling = Literal["avg", "avg_max", "timm", "class", "mean", "both"]
FROZEN_STREAM = (0, "backbone.frozen")  # of random weights, the same for any trial's seed


class Backbone(nn.Module):
    """A model without its classifier.

    Attributes:
        features: F.
        mean, std: of red, green and blue in [0, 1], as the weights expect them.
        pixels: what the weights expect. A network that reads blue first gets images whose order is
            red, green, blue all the same.
        pooling: "avg" or "avg_max" (global average, plus global maximum, of the last map), or
            "timm" where the model pools in its own way (tokens, or layers after pooling), or
            `backbone.tokens`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        features: int,
        pooling: Pooling,
        pixels: Pixels,
        freeze_bn: bool,
        channels_last: bool,
    ) -> None:
        super().__init__()
        self.model, self.features, self.pooling, self.pixels = model, features, pooling, pixels
        self.mean, self.std = pixels.to_rgb_statistics()
        self.freeze_bn, self.channels_last = freeze_bn, channels_last

    def forward(self, images: Tensor) -> Tensor:
        """Map normalised images [B, 3, S, S] to features [B, F] in float32, also under autocast."""
        return self.pool(self.compute_maps(images))

    def compute_maps(self, images: Tensor) -> Tensor:
        """Return the last maps [B, C, H, W], or the tokens of a transformer."""
        if self.pixels.channels == "bgr":  # images come with red first
            images = images.flip(1)
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return self.model.forward_features(images)  # type: ignore[operator,no-any-return]

    def pool(self, maps: Tensor) -> Tensor:
        """Pool the last maps or tokens to features [B, F] in float32, as `pooling` says."""
        if self.pooling == "timm":
            return to_full_precision(self.model.forward_head(maps, pre_logits=True))  # type: ignore[operator]
        if self.pooling in ("class", "mean", "both"):
            return to_full_precision(pool_tokens(self.model, maps, self.pooling))
        maps = to_full_precision(maps)
        mean = maps.mean((2, 3))
        return mean + maps.amax((2, 3)) if self.pooling == "avg_max" else mean

    def train(self, mode: bool = True) -> "Backbone":
        """Set training mode; with `freeze_bn` BatchNorm keeps using its stored statistics."""
        super().train(mode)
        for module in self.modules() if self.freeze_bn else ():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self


def build_backbone(
    config: BackboneConfig, image_size: int, *, channels_last: bool = False
) -> Backbone:
    """Return the configured backbone on the CPU, in training mode, with `config.hold` frozen.

    With weights "none" initial values come from torch's global generator, which
    `streams.seed_global_generator` seeds.
    """
    model, stated_pixels = load_model(config, image_size)
    model.eval()
    # pass a sample image, which shows how the model pools and which norms follow a convolution
    picture = torch.linspace(-1, 1, 3 * image_size**2).view(1, 3, image_size, image_size)
    with explain_model_errors(config.name, image_size):
        features, pooling = _probe_features(model, config, picture)
    hold_parameters(model, config.hold)
    if folds_norms(config):
        LOG.info("%d frozen BatchNorms are folded", fold_frozen_norms(model, picture))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    return Backbone(
        model,
        features=features,
        pooling=pooling,
        pixels=resolve_pixel_statistics(config, stated_pixels),
        freeze_bn=config.freeze_bn,
        channels_last=channels_last,
    ).train()


def hold_parameters(model: nn.Module, prefixes: Iterable[str]) -> None:
    """Exclude from training all parameters whose dotted name begins with one of `prefixes`."""
    for prefix in prefixes:
        parameters = [p for n, p in model.named_parameters() if f"{n}.".startswith(f"{prefix}.")]
        if not parameters:
            parts = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
            raise ConfigError(
                "backbone.hold",
                f"no parameter's name begins with {prefix!r}",
                f"Names begin with {', '.join(parts)}. Give some of these",
            )
        for parameter in parameters:
            parameter.requires_grad_(False)


def count_parameters(config: BackboneConfig, image_size: int) -> int:
    """Count the parameters of the configured model without allocating any."""
    model = build_on_meta(config.name, image_size)
    return sum(parameter.numel() for parameter in model.parameters())


def load_model(config: BackboneConfig, image_size: int) -> tuple[nn.Module, Pixels]:
    """Return the configured model with its weights, and which pixel values the weights expect."""
    # a model that timm lacks
    if (own := BACKBONES.get(config.name)) is not None:
        check_route(config)
        model: nn.Module = own()
        if config.weights == "torchvision":
            tensors = download_torchvision(config.name)
            load_tensors_into(model, tensors, own.CLASSIFIER, "torchvision's file", config.name)
        elif config.weights != "none":
            load_weights(model, config, own.CLASSIFIER, own.convert)
        return model, own.PIXELS
    # a model of timm
    timm = import_timm()
    check_name(config.name)
    check_route(config)
    with explain_model_errors(config.name, image_size):
        model = create_model(config.name, image_size)
    data: dict[str, Any] = timm.data.resolve_model_data_config(model)
    mean, std = data["mean"], data["std"]
    if config.weights == "timm":
        model = download_model(config.name, image_size)
    elif config.weights != "none":
        classifier = getattr(model, "pretrained_cfg", {}).get("classifier") or ()
        load_weights(model, config, [classifier] if isinstance(classifier, str) else classifier)
    if config.weights == "packaged":
        mean = std = (PACKAGED_MEAN_STD,) * 3
    return model, Pixels(tuple(mean), tuple(std))


def check_fits(config: BackboneConfig, image_size: int) -> None:
    """Refuse a source that has no weights of the model, and a weights file of another model.

    A missing file is accepted, because it may be there when the trial runs.
    """
    check_route(config)
    if config.tokens is not None:
        _check_tokens(config.name, image_size, config.tokens)
    if config.weights in ROUTES or not has_file(config):  # there is no file to check
        return
    with seed_global_generator(0, "backbone.check"):  # the caller's random numbers stay as they are
        load_model(config, image_size)


def folds_norms(config: BackboneConfig) -> bool:
    """Return whether norms are folded: their statistics are fixed but their weights train."""
    return config.mode == "finetune" and config.freeze_bn


def build_frozen_backbone(config: BackboneConfig, image_size: int) -> Backbone:
    """Return the frozen backbone that computes cached features, the same for any trial's seed."""
    with seed_global_generator(*FROZEN_STREAM):
        backbone = build_backbone(config, image_size, channels_last=True)
    return backbone.requires_grad_(False).eval()


def _probe_features(
    model: nn.Module, config: BackboneConfig, picture: Tensor
) -> tuple[int, Pooling]:
    """Return the number of features and the pooling of a model in evaluation mode.

    The pooling is `config.tokens` if it is given; else `config.pool` if the head averages maps;
    else "timm".
    """
    with torch.no_grad():
        maps = model.forward_features(picture)  # type: ignore[operator]
        pooled = model.forward_head(maps, pre_logits=True)  # type: ignore[operator]
        if config.tokens is not None:
            features = pool_tokens(model, maps, config.tokens).shape[1]
    if config.tokens is not None:
        return features, config.tokens
    has_same_width = maps.dim() == 4 and maps.shape[1] == pooled.shape[1]
    if has_same_width and torch.allclose(maps.mean((2, 3)), pooled, rtol=1e-3, atol=1e-5):
        return pooled.shape[1], config.pool
    LOG.info("%s has a special pooling; backbone.pool does not apply", config.name)
    return pooled.shape[1], "timm"


def pool_tokens(model: Any, tokens: Tensor, choice: Tokens) -> Tensor:
    """Pool a transformer's tokens [B, N, F] to [B, F], or to [B, 2 F] for "both".

    "class" is the class token, "mean" the mean of the tokens of patches, without class and register
    tokens, and "both" the class token beside that mean. Each passes the model's norm after pooling,
    if there is one, so that "class" or "mean" equals the model's own pooling where this is the
    same.
    """
    has_tokens = tokens.dim() == 3
    if not has_tokens or (choice != "mean" and getattr(model, "cls_token", None) is None):
        raise ConfigError(
            "backbone.tokens",
            f"the model {'has no class token' if has_tokens else 'makes maps and not tokens'}, so "
            f"{choice!r} cannot be taken",
            f"{'Set backbone.tokens to mean' if has_tokens else 'Leave backbone.tokens out'}, or "
            "use a ViT that has one",
        )
    patches = tokens[:, getattr(model, "num_prefix_tokens", 0) :]
    parts = [] if choice == "mean" else [tokens[:, 0]]
    parts += [] if choice == "class" else [patches.mean(1)]
    norm = getattr(model, "fc_norm", None) or nn.Identity()
    return torch.cat([norm(part) for part in parts], 1)


@lru_cache(maxsize=64)  # a plan calls this for each of its studies
def _check_tokens(name: str, image_size: int, choice: Tokens) -> None:
    """Refuse a model without the tokens that `backbone.tokens` pools; load no weights."""
    with explain_model_errors(name, image_size), torch.device("meta"), torch.no_grad():
        model: Any = build_on_meta(name, image_size).eval()
        images = torch.empty(1, 3, image_size, image_size)
        pool_tokens(model, model.forward_features(images), choice)


def resolve_pixel_statistics(config: BackboneConfig, stated: Pixels) -> Pixels:
    """Return the pixel values that weights expect: as configured, else as `stated`."""
    maximum = config.pixel_max or stated.maximum
    # scale the stated mean and std to the configured range
    factor = 1 if maximum == stated.maximum else maximum / stated.maximum
    mean = config.mean or tuple(value * factor for value in stated.mean)
    std = config.std or tuple(value * factor for value in stated.std)
    if max(mean) > maximum or min(mean) < 0:
        other = 255 if maximum == 1 else 1
        raise ConfigError(
            "backbone.mean",
            f"{list(mean)} cannot be the mean of pixels from 0 to {maximum}",
            f"Give backbone.pixel_max: {other} if the pixels are from 0 to {other}",
        )
    return Pixels(mean, std, config.channels or stated.channels, maximum)  # type: ignore[arg-type]
