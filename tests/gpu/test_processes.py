"""Two processes that share a step on GPUs: that of one, and SyncBatchNorm against the whole batch.

NCCL has a GPU for each process, so that its tests need two. With one GPU both processes compute on
it and exchange by gloo, which shows the arithmetic. On the CPU SyncBatchNorm does not compute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu import on
from tests.trainables.core import divided_steps as divided
from tests.trainables.core.sharing import shared
from tests.trainables.core_trials import config
from trainables.backbones.backbone import Backbone
from trainables.backbones.memory import synchronize_batch_norms
from trainables.core.assembly import check_processes
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.machine.group import ALONE, Group
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

CLOSE = 1e-6  # of float64, relative to the largest gradient
CASES: tuple[tuple[str, str], ...] = (("plain", "multi_similarity"), ("idml", "proxy_anchor"))
GIVEN: dict[str, Any] = {"images": 13, "side": 32}  # which 2 does not divide


def exchanges(device: torch.device) -> list[Any]:
    """How two processes exchange, with their devices: by gloo, and by NCCL if there are GPUs."""
    if device.type == "cpu":
        return [pytest.param(["cpu", "cpu"], ["cpu", "cpu"], id="rehearsed")]
    pair = ["cuda:0", "cuda:1"]
    lacking = pytest.mark.skipif(
        torch.cuda.device_count() < 2, reason="NCCL needs a GPU for each process"
    )
    return [
        pytest.param(None, ["cuda:0", "cuda:0"], id="gloo on one GPU"),
        pytest.param(pair, pair, id="NCCL", marks=lacking),
    ]


each_exchange = pytest.mark.parametrize(("backends", "devices"), exchanges(on.tried()))


def steps_of(group: Group, device: str, freeze_bn: bool) -> list[Any]:
    results = []
    for case in CASES:
        backbone: Backbone = divided.convolutions(freeze_bn=freeze_bn).to(device)
        if not freeze_bn and group.size > 1:
            synchronize_batch_norms(backbone, group.tensors)
        with on.SameDraws():
            step = divided.stepped(backbone, *case, group=group, device=device, **GIVEN)
        results.append((step, {name: b.cpu() for name, b in backbone.named_buffers()}))
    return results


def steps(group: Group, devices: list[str], freeze_bn: bool) -> list[Any]:
    return steps_of(group, devices[group.rank], freeze_bn)


@each_exchange
@pytest.mark.parametrize("freeze_bn", [True, False], ids=["fixed norms", "SyncBatchNorm"])
def test_a_shared_step_is_that_of_one(
    freeze_bn: bool, backends: Any, devices: list[str], device: torch.device
) -> None:
    """Loss, gradients and running statistics; both processes have the same gradients."""
    if not freeze_bn and device.type == "cpu":
        pytest.skip("SyncBatchNorm computes on GPUs only")
    first, second = shared(2, steps, devices, freeze_bn, devices=backends)
    alone = steps_of(ALONE, devices[0], freeze_bn)
    for number, case in enumerate(CASES):
        (expected, statistics), (step, reported) = alone[number], first[number]
        assert divided.max_difference(expected, step) < CLOSE, case
        assert divided.max_difference(step, second[number][0]) < CLOSE, case
        for name, buffer in statistics.items():
            torch.testing.assert_close(reported[name], buffer, rtol=1e-9, atol=1e-12)


def trial_of(root: Path, freeze_bn: bool) -> TrialConfig:
    backbone = {"mode": "finetune", "freeze_bn": freeze_bn}
    return config(root, backbone=backbone, training={"epochs": 2})


def trained(
    group: Group, devices: list[str], root: Path, cache: Path, freeze_bn: bool
) -> dict[str, Any]:
    runtime = Runtime(devices[group.rank], 1, cache)
    trainer = Trainer(trial_of(root, freeze_bn), 0, runtime, group=group)
    losses = [report.metrics["train/loss"] for report in trainer.train_epochs()]
    return {"losses": losses, "told": trainer.finish(("test",)).evaluations["test"]}


@each_exchange
@pytest.mark.parametrize("freeze_bn", [True, False], ids=["fixed norms", "SyncBatchNorm"])
def test_a_shared_trial_is_that_of_one(
    *,
    freeze_bn: bool,
    backends: Any,
    devices: list[str],
    drawn: Path,
    shared_cache: Path,
    device: torch.device,
) -> None:
    """In float32, two epochs; one evaluation, shared out, of which both hear the same. Norms in
    training are refused on the CPU."""
    if not freeze_bn and device.type == "cpu":
        with pytest.raises(ConfigError, match="use statistics of the whole batch"):
            check_processes(trial_of(drawn, freeze_bn), 2)
        return
    options = (devices, drawn, shared_cache, freeze_bn)
    first, second = shared(2, trained, *options, devices=backends)
    alone = trained(ALONE, *options)
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-2)
    assert second["told"] == first["told"]
    assert first["told"] == pytest.approx(alone["told"], abs=0.1)
