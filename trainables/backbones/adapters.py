"""Train a part of a pretrained backbone: low-rank adapters, the biases, or the last blocks.

A backbone in one of these modes starts from the weights of the frozen backbone, which are the same
for each seed. What does not train keeps these weights to the bit, so checkpoints and exports leave
it out.

    lora         W x + (α / r) · B A x in each layer that is a target; A and B train, W does not
    bias         all biases train, those of norms too
    last_blocks  the last k blocks train, and all that the model has after them

A target is a linear layer or a 1 × 1 convolution. The first B is zero, so that training starts at
the frozen backbone. Blocks are the groups by which timm lets learning rates fall with depth.

Differences from LoRA: the query, key and value of timm's fused `qkv` layer share one A. A starts
uniform in ±1 / √in, as in the authors' code and in peft, and not Gaussian. MLPs are targets too.

References:
    LoRA, eq. 3: Hu et al., "LoRA: Low-rank adaptation of large language models", ICLR 2022,
    https://arxiv.org/abs/2106.09685.
    Biases: Ben Zaken et al., "BitFit: Simple parameter-efficient fine-tuning for transformer-based
    masked language-models", ACL 2022, https://arxiv.org/abs/2106.10199.

Shape legend: `in`, `out` features of a layer · r rank.
"""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from trainables.backbones.backbone import hold_parameters
from trainables.backbones.timm_models import build_on_meta
from trainables.config.network import TARGETS, BackboneConfig
from trainables.words.errors import ConfigError

REVISION = 1  # raise by hand when the numbers of these modes change
SHOWN = 12  # names of layers in an error


class AdaptedLayer(nn.Module):
    """A linear layer or 1 × 1 convolution that does not train, with a low-rank adapter that does.

    A is drawn from torch's global generator.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer, self.scale = layer.requires_grad_(False), alpha / rank
        width_out, width_in = layer.weight.shape[:2]
        self.lora_a = nn.Parameter(layer.weight.new_empty(rank, width_in))
        self.lora_b = nn.Parameter(layer.weight.new_zeros(width_out, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))  # uniform in ±1 / √in

    @property
    def weight(self) -> Tensor:
        """The merged weight W + (α / r) · B A, which models read that do not call the layer."""
        weight = self.layer.weight
        return weight + self.scale * (self.lora_b @ self.lora_a).view_as(weight)

    @property
    def bias(self) -> Tensor | None:
        """The layer's bias."""
        return self.layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] → [..., out], or [B, in, H, W] → [B, out, H, W] for a convolution."""
        if isinstance(self.layer, nn.Conv2d):
            a, b = (matrix[..., None, None] for matrix in (self.lora_a, self.lora_b))
            change = F.conv2d(self.scale * F.conv2d(x, a, stride=self.layer.stride), b)
        else:  # the scale is multiplied where there are only r features
            change = F.linear(self.scale * F.linear(x, self.lora_a), self.lora_b)
        output: Tensor = self.layer(x)
        return output.add_(change)  # in place, because the sum would take as much memory again


def merge_adapters(model: nn.Module) -> nn.Module:
    """Add all adapters of a model to its weights, in place, and return the model without them."""
    adapted = [(name, m) for name, m in model.named_modules() if isinstance(m, AdaptedLayer)]
    for name, module in adapted:
        module.layer.weight.data = module.weight.detach()
        model.set_submodule(name, module.layer)
    return model


def restrict_training(model: nn.Module, config: BackboneConfig) -> None:
    """Leave to train what `config.mode` says, of what trains now, and add adapters if it is lora.

    Raises:
        ConfigError: nothing would train, or an option does not fit the model.
    """
    chosen = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if config.blocks is not None:
        chosen &= _list_last_parameters(model, config)
    layers = _select_layers(model, config) if config.mode == "lora" else {}
    if config.mode == "bias":  # also q_bias and v_bias, as some models of timm call them
        chosen = {name for name in chosen if name.endswith("bias")}
    elif config.mode == "lora":
        layers = {name: layer for name, layer in layers.items() if f"{name}.weight" in chosen}
        chosen = set()
    if not layers and not chosen:
        raise ConfigError(
            "backbone.mode",
            f"{config.mode} leaves nothing of {config.name} to train with backbone.blocks: "
            f"{config.blocks} and hold: {list(config.hold)}",
            "Take another mode, or other blocks",
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen)
    for name, layer in layers.items():
        assert config.rank is not None and config.alpha is not None  # validation filled them in
        model.set_submodule(name, AdaptedLayer(layer, config.rank, config.alpha))


@lru_cache(maxsize=64)  # a plan calls this for each of its trials
def check_partial_training(config: BackboneConfig, image_size: int) -> None:
    """Refuse a mode that does not fit the model, without weights; rank and alpha do not matter."""
    model = build_on_meta(config.name, image_size)
    hold_parameters(model, config.hold)
    restrict_training(model, config)


def _list_last_parameters(model: nn.Module, config: BackboneConfig) -> set[str]:
    """Return the names of all parameters from the first of the last `config.blocks` blocks on."""
    from timm.models import group_parameters

    assert config.blocks is not None
    matcher: Any = model.group_matcher(coarse=False) if hasattr(model, "group_matcher") else None  # type: ignore[operator]
    if not isinstance(matcher, dict):  # an own model, and some of timm
        raise ConfigError(
            "backbone.blocks",
            f"{config.name} does not say what its blocks are",
            "Leave blocks out, or take a ViT or ConvNeXt",
        )
    # timm adds parameters that the matcher lacks, such as a last norm, to the block before (99,999)
    groups = group_parameters(model, matcher | {"rest": [(".", (99_999,))]})
    names, blocks = [name for name, _ in model.named_parameters()], list(groups.values())[1:]
    if config.blocks > len(blocks):
        raise ConfigError(
            "backbone.blocks",
            f"{config.name} has {len(blocks)} blocks, not {config.blocks}",
            f"Give at most {len(blocks)}",
        )
    return set(names[names.index(blocks[-config.blocks][0]) :])


def _select_layers(model: nn.Module, config: BackboneConfig) -> dict[str, nn.Linear | nn.Conv2d]:
    """Return the layers that `config.targets` names, by dotted name."""
    layers = {name: m for name, m in model.named_modules() if _can_adapt(m)}
    if not layers:
        names = _shorten_names(n for n, m in model.named_modules() if not list(m.children()))
        raise ConfigError(
            "backbone.mode",
            f"{config.name} has no linear layers to adapt; its layers are {names}",
            "Take mode bias, last_blocks or finetune",
        )
    names = _shorten_names(layers)
    selected: dict[str, Any] = {}
    for part in config.targets or TARGETS:
        matches = {name: m for name, m in layers.items() if f".{part}." in f".{name}."}
        if not matches and config.targets is not None:
            raise ConfigError(
                "backbone.targets",
                f"no linear layer of {config.name} has the name part {part!r}",
                f"Linear layers are named {names}",
            )
        selected |= matches
    if not selected:
        raise ConfigError(
            "backbone.targets",
            f"{config.name} has no linear layers in parts named {' or '.join(TARGETS)}",
            f"Give some of its linear layers as targets: {names}",
        )
    return selected


def _can_adapt(module: nn.Module) -> bool:
    """Return whether a module multiplies features by its weight, as it is, and does no more."""
    if type(module) is nn.Conv2d:
        return module.kernel_size == (1, 1) and module.groups == 1 and module.padding == (0, 0)
    return type(module) is nn.Linear


def _shorten_names(names: Iterable[str]) -> str:
    """Return the distinct last parts of dotted names, without numbers of blocks, as a text."""
    parts = sorted({re.sub(r"^.*\.\d+\.", "", name) for name in names})
    return ", ".join(parts[:SHOWN]) + ", …" * (len(parts) > SHOWN)
