"""One step's loss and gradients of a small backbone with any method, by any kind of pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ablate.testing import trials
from tests.trainables.components import loss_options
from trainables import streams
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.grad_cache import GradCacheRunner
from trainables.config.network import BackboneConfig
from trainables.core.epoch_metrics import EpochMetrics
from trainables.core.network import build_method
from trainables.machine.group import ALONE, Group
from trainables.methods.base import Batch, Progress

IMAGES, CLASSES, SIDE = 12, 3, 16
MANY = 48  # images of a step whose memory is measured


@dataclass(frozen=True)
class Stepped:
    """loss: its value. gradients: of each parameter by name, None where none reaches it."""

    loss: Tensor
    gradients: dict[str, Tensor | None]


def transformer() -> Backbone:
    """Two blocks of a ViT, of 4 patches and a class token, in float64."""
    from timm.models.vision_transformer import VisionTransformer

    with streams.seed_global_generator(0, "vit"):
        model = VisionTransformer(
            img_size=SIDE, patch_size=8, embed_dim=24, depth=2, num_heads=2, num_classes=0
        )
    return _backbone(model, 24)


def convolutions(*, freeze_bn: bool = True) -> Backbone:
    """A MobileNetV3, its norms fixed and folded unless said, in float64."""
    config = BackboneConfig(name="mobilenetv3_small_050", weights="none", freeze_bn=freeze_bn)
    with streams.seed_global_generator(0, "cnn"):
        return build_backbone(config, 32).double()


def _backbone(model: nn.Module, features: int) -> Backbone:
    pixels = (0.5, 0.5, 0.5)
    return Backbone(
        model,
        features=features,
        pooling="timm",
        mean=pixels,
        std=pixels,
        freeze_bn=True,
        channels_last=False,
    ).double()


@cache
def pictures(images: int, side: int) -> Tensor:
    """The same tensor each time."""
    generator = streams.create_generator(0, "x")
    return torch.randn(images, 3, side, side, generator=generator, dtype=torch.float64)


def stepped(
    backbone: Backbone,
    method: str | dict[str, Any],
    loss: str,
    most: int | None = None,
    *,
    group: Group = ALONE,
    fraction: float = 0.0,
    images: int = IMAGES,
    side: int = SIDE,
    through: Callable[[Tensor], Tensor] | None = None,
    device: torch.device | str = "cpu",
) -> Stepped:
    """A step as the core takes it, of the same images and draws each time; told on the CPU.

    Args:
        device: of the backbone. Draws are of the CPU, and brought there by whoever calls.
        most: images at once. fraction: of the training, for methods of several phases.
        through: in place of the backbone's own call.
    """
    made = trials.build_trial(method, loss_options(loss), embedding={"dim": 6})
    assert not isinstance(made, str), made
    head = build_method(made, features=backbone.features, classes=CLASSES, seed=5)
    head = head.to(device, next(backbone.parameters()).dtype)
    backbone.requires_grad_(True).zero_grad()
    passes = GradCacheRunner(
        through or backbone, backbone, head, most=most, checkpointed=False, group=group
    )
    progress = Progress(step=3, fraction=fraction)
    shown = pictures(images, side).to(device, next(backbone.parameters()).dtype)
    labels = trials.build_labels(loss_options(loss), images, CLASSES).to(device)
    batch = Batch(shown, labels)
    batch = head.prepare(batch, streams.create_generator(0, "prepare"))
    features = passes.compute_features(batch.inputs)
    state = head(features, batch.labels, progress, streams.create_generator(0, "method"))
    terms = head.terms(state, batch.labels, progress, streams.create_generator(0, "loss"))
    total = EpochMetrics(1, 0).add(terms)
    passes.backward(total)
    named = [*head.named_parameters(), *backbone.named_parameters()]
    gradients = {
        name: None if parameter.grad is None else parameter.grad.clone().cpu()
        for name, parameter in named
    }
    return Stepped(total.detach().cpu(), gradients)


def digest(step: Stepped) -> str:
    """Of all its bits."""
    tensors = {name: g for name, g in step.gradients.items() if g is not None}
    found = hashlib.sha256(step.loss.numpy().tobytes())
    for name, gradient in tensors.items():
        found.update(name.encode() + gradient.contiguous().numpy().tobytes())
    return found.hexdigest()


def apart(one: Stepped, other: Stepped) -> float:
    """The largest difference of the losses, and of any gradient relative to the largest entry of
    all; infinite where a gradient reaches a parameter in one of both alone."""
    found = float((one.loss - other.loss).abs() / one.loss.abs().clamp_min(1))
    assert one.gradients.keys() == other.gradients.keys()
    largest = max(float(g.abs().max()) for g in one.gradients.values() if g is not None)
    for name, gradient in one.gradients.items():
        left = other.gradients[name]
        if gradient is None or left is None:
            found = found if gradient is left else float("inf")
        else:
            found = max(found, float((gradient - left).abs().max()) / max(largest, 1.0))
    return found


def most_kept_bytes(backbone: Backbone, most: int | None) -> int:
    """Most bytes that autograd keeps until `backward`, but images and parameters."""
    inputs = (pictures(MANY, SIDE), *backbone.parameters())
    storages = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    current: dict[int, int] = {}
    peak = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal peak
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            current[storage.data_ptr()] = storage.nbytes()
        peak = max(peak, sum(current.values()))
        return tensor

    def unpack(tensor: Tensor) -> Tensor:
        current.clear()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        stepped(backbone, "plain", "proxy_anchor", most, images=MANY)
    return peak
