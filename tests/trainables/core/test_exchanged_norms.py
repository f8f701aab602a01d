"""BatchNorm in training by several processes: SyncBatchNorm on GPUs, refused without.

The numbers of a shared step are compared in `tests/gpu/test_processes.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainables.core import divided_steps as divided
from tests.trainables.core_trials import config
from trainables.backbones.backbone import build_backbone
from trainables.backbones.memory import check_parts, find_batch_norms, synchronize_batch_norms
from trainables.config.network import BackboneConfig
from trainables.core.assembly import check_processes
from trainables.words.errors import ConfigError

TRAINS: dict[str, Any] = {"backbone": {"mode": "finetune", "freeze_bn": False}}


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "bn_inception", "resnet18"])
def test_what_is_converted_keeps_its_tensors_names_and_function(name: str) -> None:
    subset = BackboneConfig(name=name, weights="none", freeze_bn=False)
    torch.manual_seed(0)
    backbone = build_backbone(subset, 64)
    images = torch.randn(2, 3, 64, 64)
    backbone(images)  # statistics that are not those of the start
    before, state = backbone.eval()(images), dict(backbone.state_dict())
    parameters = [*backbone.train().parameters()]
    norms = len(find_batch_norms(backbone))
    synchronize_batch_norms(backbone, None)
    assert [*backbone.state_dict()] == [*state], "names, in their order"
    assert all(
        actual is options for actual, options in zip(backbone.parameters(), parameters, strict=True)
    )
    actual = find_batch_norms(backbone)
    assert len(actual) == norms > 0
    assert all(isinstance(norm, nn.SyncBatchNorm) for norm in actual)
    assert torch.equal(backbone.eval()(images), before)


def test_it_is_refused_without_gpus_and_in_parts(drawn: Path) -> None:
    trial = config(drawn, **TRAINS)
    check_processes(trial, 3, on_gpus=True)
    with pytest.raises(ConfigError, match=r"BatchNormAct2d.*give each process a GPU"):
        check_processes(trial, 3)
    with pytest.raises(ConfigError, match=r"BatchNormAct2d.*Set backbone.freeze_bn"):
        check_parts(trial.backbone.name, 32, freeze_bn=False)
    backbone = divided.convolutions(freeze_bn=False)
    synchronize_batch_norms(backbone, None)
    with pytest.raises(ConfigError, match=r"SyncBatchNorm.* in training"):
        divided.stepped(backbone, "plain", "triplet_l2", 4, side=32)
