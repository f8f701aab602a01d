"""BatchNorm in training by several processes: SyncBatchNorm on GPUs, refused without.

SyncBatchNorm itself computes on GPUs alone, and is compared there (`tests/gpu`). Here its place is
taken by a stand-in, so that all around it is tried: what is converted, who exchanges when, and
what comes of gradients and running statistics.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainables.core import divided_steps as divided
from tests.trainables.core import exchanged_norms
from tests.trainables.core.sharing import shared, subgroup
from tests.trainables.core_trials import config
from trainables.backbones.backbone import Backbone, build_backbone
from trainables.backbones.memory import check_parts, find_batch_norms, synchronize_batch_norms
from trainables.config.network import BackboneConfig
from trainables.core.assembly import check_shared, uses_sync_batch_norm
from trainables.errors import ConfigError
from trainables.machine.group import Group

CLOSE = 1e-6  # of float64, relative to the largest gradient
CASES: tuple[tuple[str, str], ...] = (("plain", "multi_similarity"), ("idml", "proxy_anchor"))
GIVEN: dict[str, Any] = {"images": 14, "side": 32}  # which 4 does not divide
TRAINS: dict[str, Any] = {"backbone": {"mode": "finetune", "freeze_bn": False}}


def buffers(backbone: Backbone) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in backbone.named_buffers()}


def stepped(group: Group) -> list[Any]:
    found = []
    for case in CASES:
        backbone = divided.convolutions(freeze_bn=False)
        synchronize_batch_norms(backbone, group.tensors)
        step = divided.stepped(backbone, *case, group=group, **GIVEN)
        found.append((step if group.is_main else divided.digest(step), buffers(backbone)))
    return found


def everything(group: Group) -> dict[str, Any]:
    exchanged_norms.stand_in()
    pair = subgroup(group, 2)
    return {"4": stepped(group), "2": None if pair is None else stepped(pair)}


@pytest.mark.slow
def test_a_shared_step_is_that_of_the_whole_batch() -> None:
    """Loss, gradients and running statistics, by two and four processes; all have the same."""
    found = shared(4, everything)
    for number, case in enumerate(CASES):
        backbone = divided.convolutions(freeze_bn=False)
        alone = divided.stepped(backbone, *case, **GIVEN)
        for size in ("2", "4"):
            (step, statistics), *others = (each[size][number] for each in found[: int(size)])
            assert divided.apart(alone, step) < CLOSE
            for name, buffer in backbone.named_buffers():
                torch.testing.assert_close(statistics[name], buffer, rtol=1e-9, atol=1e-12)
            assert [digest for digest, _ in others] == [divided.digest(step)] * (int(size) - 1)


@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "bn_inception", "resnet18"])
def test_what_is_converted_keeps_its_tensors_names_and_function(name: str) -> None:
    made = BackboneConfig(name=name, weights="none", freeze_bn=False)
    torch.manual_seed(0)
    backbone = build_backbone(made, 64)
    images = torch.randn(2, 3, 64, 64)
    backbone(images)  # statistics that are not those of the start
    before, state = backbone.eval()(images), dict(backbone.state_dict())
    parameters = [*backbone.train().parameters()]
    norms = len(find_batch_norms(backbone))
    synchronize_batch_norms(backbone, None)
    assert [*backbone.state_dict()] == [*state], "names, in their order"
    assert all(
        found is given for found, given in zip(backbone.parameters(), parameters, strict=True)
    )
    found = find_batch_norms(backbone)
    assert len(found) == norms > 0
    assert all(isinstance(norm, nn.SyncBatchNorm) for norm in found)
    assert torch.equal(backbone.eval()(images), before)


@pytest.mark.parametrize(
    ("changes", "processes", "device", "exchange"),
    [
        (TRAINS, 2, "cuda", True),
        (TRAINS, 2, "cpu", False),
        (TRAINS, 1, "cuda", False),
        ({"backbone": {"mode": "finetune"}}, 2, "cuda", False),
        ({"backbone": {"mode": "frozen", "freeze_bn": False}}, 2, "cuda", False),
    ],
)
def test_who_exchanges(
    drawn: Path, changes: Any, processes: int, device: str, exchange: bool
) -> None:
    trial = config(drawn, **changes)
    assert uses_sync_batch_norm(trial, processes, torch.device(device)) == exchange


def test_it_is_refused_without_gpus_and_in_parts(drawn: Path) -> None:
    trial = config(drawn, **TRAINS)
    check_shared(trial, 3, on_gpus=True)
    with pytest.raises(ConfigError, match=r"BatchNormAct2d.*Give each a GPU .resources.gpus."):
        check_shared(trial, 3)
    with pytest.raises(ConfigError, match=r"BatchNormAct2d.*Set backbone.freeze_bn"):
        check_parts(trial.backbone.name, 32, freeze_bn=False)
    backbone = divided.convolutions(freeze_bn=False)
    synchronize_batch_norms(backbone, None)
    with pytest.raises(ConfigError, match=r"SyncBatchNorm.* in training"):
        divided.stepped(backbone, "plain", "triplet_l2", 4, side=32)


def test_what_cannot_be_converted_is_refused_with_gpus_too(
    drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A norm of another kind would be taken for a plain one."""
    from trainables.backbones import memory

    class Other(nn.BatchNorm2d):
        pass

    def made(name: str, size: int | None) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 1), Other(4))

    monkeypatch.setattr(memory, "build_on_meta", made)
    memory.check_parts.cache_clear()
    with pytest.raises(ConfigError, match=r"whose 1 norms .Other. compute"):
        check_shared(config(drawn, **TRAINS), 2, on_gpus=True)
    memory.check_parts.cache_clear()
