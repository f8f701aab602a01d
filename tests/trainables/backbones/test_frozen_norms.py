"""Folded frozen norms: the function and its gradients stay, and so do all names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables import streams
from trainables.backbones import backbone as backbones
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.frozen_norms import FoldedConv2d, SmallDepthwise
from trainables.config.network import BackboneConfig


def restless(backbone: Backbone) -> Backbone:
    """No statistic or affine weight at its start, where a norm does almost nothing."""
    draw = streams.create_generator(0, "stir")
    with torch.no_grad():
        for name, value in [*backbone.named_parameters(), *backbone.named_buffers()]:
            if "running_var" in name:
                value.uniform_(0.5, 2, generator=draw)
            elif value.dim() == 1 and value.is_floating_point():
                value.add_(0.2 * torch.randn(value.shape, generator=draw))
    return backbone.double()


def built(name: str, monkeypatch: pytest.MonkeyPatch, *, fold: bool) -> Backbone:
    config = BackboneConfig(name=name, weights="none")
    with monkeypatch.context() as patch, streams.seed_global_generator(0, "backbone"):
        if not fold:
            patch.setattr(backbones, "fold_frozen_norms", lambda model, image: 0)
        return restless(build_backbone(config, 32, channels_last=True))


def pooled_and_gradients(backbone: Backbone) -> tuple[Tensor, dict[str, Tensor]]:
    images = torch.rand(
        2, 3, 32, 32, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )
    pooled = backbone(images)
    pooled.sin().sum().backward()
    return pooled.detach(), {name: p.grad for name, p in backbone.named_parameters()}


# resnetv2's stem feeds a norm and a shortcut.
@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("tf_efficientnet_lite0", 49),
        ("resnet18", 20),
        ("resnetv2_18", 8),
        ("bn_inception", 69),
        ("googlenet", 57),
    ],
)
def test_folded_is_the_same_function(
    name: str, folded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = built(name, monkeypatch, fold=False)
    ours = built(name, monkeypatch, fold=True)
    assert sum(isinstance(m, FoldedConv2d) for m in ours.modules()) == folded
    assert list(plain.state_dict()) == list(ours.state_dict())
    expected, expected_gradients = pooled_and_gradients(plain)
    found, gradients = pooled_and_gradients(ours)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert list(gradients) == list(expected_gradients)
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[key], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("changes", [{"mode": "frozen"}, {"freeze_bn": False}])
def test_only_frozen_norms_that_train_are_folded(changes: Any) -> None:
    config = BackboneConfig(name="resnet18", weights="none", **changes)
    assert not any(isinstance(m, FoldedConv2d) for m in build_backbone(config, 32).modules())


def test_what_is_folded_does_not_depend_on_where_memory_lies() -> None:
    """Tensors that are gone leave their ids to others: none may be counted for another."""
    config = BackboneConfig(name="mobilenetv3_small_050", weights="none")
    for _ in range(3):
        backbone = build_backbone(config, 32)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in backbone.modules())


@pytest.mark.parametrize("side", [1, 2, 4])
@pytest.mark.parametrize(("k", "stride", "pad"), [(5, 1, 2), (5, 2, 0), (3, 1, 1), (5, 2, 2)])
def test_small_depthwise_by_autograd(side: int, k: int, stride: int, pad: int) -> None:
    if side + 2 * pad < k:
        return
    x, w, b = (
        torch.randn(*shape, dtype=torch.float64, generator=streams.create_generator(0, str(shape)))
        for shape in [(2, 6, side, side), (6, 1, k, k), (6,)]
    )
    leaves = [t.requires_grad_() for t in (x, w, b)]
    ours = SmallDepthwise.apply(x, w, b, (stride, stride), (pad, pad))
    plain = F.conv2d(x, w, b, stride, pad, 1, 6)
    assert torch.equal(ours, plain)
    for a, e in zip(
        torch.autograd.grad(ours.sin().sum(), leaves),
        torch.autograd.grad(plain.sin().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, e)


def test_a_held_parameter_stays_held() -> None:
    backbone = build_backbone(
        BackboneConfig(name="resnet18", weights="none", hold=("bn1", "conv1")), 32
    )
    assert not backbone.model.get_parameter("bn1.weight").requires_grad
    assert not backbone.model.get_parameter("conv1.weight").requires_grad
    assert isinstance(backbone.model.get_submodule("conv1"), FoldedConv2d | nn.Conv2d)
