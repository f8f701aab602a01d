"""Activations computed anew in `backward`: the same numbers, from fewer that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from tests.trainables.core_trials import config, timeless
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.memory import (
    hold_running_statistics,
)
from trainables.config.network import BackboneConfig
from trainables.core.identity import compute_config_hash
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.streams import seed_global_generator


def made(name: str, *, freeze_bn: bool = True, side: int = 32) -> Backbone:
    with seed_global_generator(0, "made"):
        return build_backbone(BackboneConfig(name=name, weights="none", freeze_bn=freeze_bn), side)


def passed(backbone: Backbone, side: int) -> tuple[int, dict[str, Tensor]]:
    """Bytes that autograd is given to keep, and gradients with the buffers after one pass."""
    bytes_kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal bytes_kept
        bytes_kept += tensor.nbytes
        return tensor

    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, side, side, generator=generator)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        features = backbone(images)
    with hold_running_statistics(backbone):
        features.square().sum().backward()
    named = {name: p.grad for name, p in backbone.named_parameters() if p.grad is not None}
    return bytes_kept, {**named, **dict(backbone.named_buffers())}


@pytest.mark.parametrize(
    ("name", "freeze_bn"),
    [
        ("vit_tiny_patch16_224", True),
        ("resnet18", False),
        ("bn_inception", False),
        ("googlenet", False),
        pytest.param("pyramidnet200", True, marks=pytest.mark.slow),
    ],
)
def test_numbers_stay_to_the_bit_and_less_is_kept(name: str, freeze_bn: bool) -> None:
    """Running statistics among them, where norms train: the second time leaves them alone."""
    side = 64 if name in ("bn_inception", "googlenet") else 32
    plain, saving = (made(name, freeze_bn=freeze_bn, side=side) for _ in range(2))
    saving.model.set_grad_checkpointing(True)
    kept, numbers = passed(plain, side)
    kept_less, found = passed(saving, side)
    assert kept_less < 0.75 * kept
    assert numbers.keys() == found.keys()
    for key, value in numbers.items():
        assert torch.equal(found[key], value), key
    if not freeze_bn and name == "resnet18":
        assert int(found["model.bn1.num_batches_tracked"]) == 1


def test_what_a_block_draws_it_draws_again() -> None:
    backbones = [made("vit_tiny_patch16_224") for _ in range(2)]
    for backbone in backbones:
        for module in backbone.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.3
    backbones[1].model.set_grad_checkpointing(True)
    numbers = []
    for backbone in backbones:
        torch.manual_seed(7)
        numbers.append(passed(backbone, 32)[1])
    assert all(torch.equal(value, numbers[1][name]) for name, value in numbers[0].items())


def test_a_trial_that_checkpoints_is_the_trial(drawn: Path, shared_cache: Path) -> None:
    trial: dict[str, Any] = {"backbone": {"mode": "finetune"}, "training": {"epochs": 1}}
    found = []
    for checkpointing in (None, True):
        trial["training"]["checkpointing"] = checkpointing
        trainer = Trainer(config(drawn, **trial), 0, Runtime("cpu", 1, shared_cache))
        (report,) = trainer.train_epochs()
        found.append((timeless(report.metrics), compute_config_hash(trainer.config, "data")))
    assert found[0] == found[1]
    assert trainer.describe_provenance()["checkpointing"] is True


@pytest.mark.parametrize("backbone", [{"mode": "frozen"}, {"mode": "finetune", "name": "vgg11"}])
def test_what_cannot_is_refused(drawn: Path, backbone: Any) -> None:
    with pytest.raises(ValidationError, match=r"training\.checkpointing"):
        config(drawn, backbone=backbone, training={"checkpointing": True})
