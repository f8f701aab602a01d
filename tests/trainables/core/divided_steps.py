"""One step's loss and gradients of a small backbone with any method, by any kind of pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ablate.testing.methods import build_trial
from tests.trainables.components import labels_for, loss_options
from trainables import streams
from trainables.backbones.adapters import restrict_training
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.memory import GradCacheRunner
from trainables.backbones.own_models import Pixels
from trainables.config.network import BackboneConfig
from trainables.core.assembly import build_method
from trainables.core.loss_terms import EpochMetrics
from trainables.machine.group import ALONE, Group
from trainables.methods.base import Batch, Progress

IMAGES, CLASSES, SIDE = 12, 3, 16
MANY = 48  # images of a step whose memory is measured


# The loss, and the gradient of each parameter by name; None where none reaches it.
Step = dict[str, Tensor | None]


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


def adapted() -> Backbone:
    """The transformer with adapters that are not zero, which alone train."""
    backbone = transformer()
    with streams.seed_global_generator(0, "adapters"):
        restrict_training(backbone.model, BackboneConfig(name="vit", mode="lora", rank=2))
        for parameter in filter(lambda p: p.requires_grad, backbone.parameters()):
            nn.init.normal_(parameter, std=0.3)
    return backbone


def _backbone(model: nn.Module, features: int) -> Backbone:
    half = (0.5, 0.5, 0.5)
    return Backbone(
        model,
        features=features,
        pooling="timm",
        pixels=Pixels(mean=half, std=half),
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
) -> Step:
    """A step as the core takes it, of the same images and draws each time; told on the CPU.

    Args:
        device: of the backbone. Draws are of the CPU, and brought there by whoever calls.
        most: images at once. fraction: of the training, for methods of several phases.
        through: in place of the backbone's own call.
    """
    subset = build_trial(method, loss_options(loss), embedding={"dim": 6})
    assert not isinstance(subset, str), subset
    head = build_method(subset, features=backbone.features, classes=CLASSES, seed=5)
    head = head.to(device, next(backbone.parameters()).dtype)
    backbone.zero_grad()
    passes = GradCacheRunner(
        through or backbone, backbone, head, most=most, checkpointed=False, group=group
    )
    progress = Progress(step=3, fraction=fraction)
    shown = pictures(images, side).to(device, next(backbone.parameters()).dtype)
    labels = labels_for(loss, images, CLASSES).to(device)
    batch = Batch(shown, labels)
    batch = head.prepare(batch, streams.create_generator(0, "prepare"))
    features = passes.compute_features(batch.inputs)
    state = head(features, batch.labels, progress, streams.create_generator(0, "method"))
    terms = head.terms(state, batch.labels, progress, streams.create_generator(0, "loss"))
    total = EpochMetrics(1, 0).add(terms)
    passes.backward(total)
    step: Step = {"loss": total.detach().cpu()}
    for name, parameter in (*head.named_parameters(), *backbone.named_parameters()):
        step[name] = None if parameter.grad is None else parameter.grad.clone().cpu()
    return step


def digest(step: Step) -> str:
    """Return a hash of all its bits."""
    total = hashlib.sha256()
    for name, tensor in step.items():
        if tensor is not None:
            total.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def max_difference(
    expected: Mapping[str, Tensor | None], actual: Mapping[str, Tensor | None]
) -> float:
    """Return the largest difference of tensors of one name, over the largest entry of all expected
    ones, or 1; infinite where a tensor is in one of both alone, or not finite."""
    assert expected.keys() == actual.keys()
    largest, difference = 1.0, 0.0
    for name in expected:
        one, other = expected[name], actual[name]
        if one is None or other is None:
            difference = difference if one is other else float("inf")
            continue
        one, other = (tensor.detach().double().cpu() for tensor in (one, other))
        if not (one.isfinite().all() and other.isfinite().all()) or one.shape != other.shape:
            return float("inf")
        if one.numel():
            largest = max(largest, float(one.abs().max()))
            difference = max(difference, float((one - other).abs().max()))
    return difference / largest


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
