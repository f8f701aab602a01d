"""DetReg in the training core: its neutral form's whole trajectory, and the paper's settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.steps import steps
from tests.trainables.core_trials import config, timeless
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.methods.detreg import DetReg
from trainables.trial import TrialConfig


@pytest.mark.parametrize("loss", ["normsoftmax", "proxy_anchor"])
@pytest.mark.parametrize("mode", ["frozen", "finetune"])
def test_neutral_detreg_trains_as_plain_bit_for_bit(
    loss: str, mode: str, drawn: Path, shared_cache: Path
) -> None:
    weights, metrics = [], []
    neutral = {"name": "detreg", **DetReg.NEUTRAL}
    for method in ({"name": "plain"}, neutral):
        trial = config(
            drawn,
            loss={"name": loss},
            method=method,
            backbone={"mode": mode},
            training={"epochs": 3, "clip_norm": 0.5},
        )
        trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
        metrics.append([report.metrics for report in trainer.epochs()])
        weights.append(trainer.network.state_dict())
    for plain, same in zip(*metrics, strict=True):
        for name, value in timeless(plain).items():
            assert same[name] == value, name
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


PAPER: dict[str, Any] = {
    "data": {"name": "typefaces", "image_size": 64},
    "backbone": {"mode": "frozen"},
    "embedding": {"dim": 512},
    "loss": {"name": "proxy_anchor"},
    "method": {"name": "detreg"},
    "optimizer": {"lr": 1e-4, "multipliers": {"head": 1, "proxies": 10, "auxiliary": 10}},
    "schedule": {"name": "linear"},
    "training": {"batch_size": 120, "per_class": 4},
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_steps_at_the_papers_settings(shared_cache: Path) -> None:
    """12 layers of Real-NVP on 512 dimensions in both branches, on cached features: every term of
    every step is finite, which the core checks, and the inverse still holds at the end."""
    least = steps(200)
    epochs = -(-least // 18)  # of 18 steps
    trial = TrialConfig.model_validate(
        PAPER | {"training": PAPER["training"] | {"epochs": epochs}, "selection": {"every": epochs}}
    )
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
    reports = list(trainer.epochs())
    assert trainer.steps >= least
    for report in reports:
        for name, value in report.metrics.items():
            if name.startswith(("term/", "observed/")):
                assert math.isfinite(value), (report.epoch, name)
                assert not name.endswith("/nonfinite"), (report.epoch, name)
    first, last = reports[0].metrics, reports[-1].metrics
    assert last["term/metric/value"] < first["term/metric/value"]
    if least >= 1000:  # before it rises a little, as embeddings of all classes part
        assert last["term/r1/value"] < first["term/r1/value"]
    assert last["term/r2/value"] > last["term/r1/value"]
    assert last["val/map_at_r"] > 0.1
