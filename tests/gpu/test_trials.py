"""Whole small trials on the device: those of the CPU, as far as rounding lets them, and back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.components import method_options
from tests.trainables.core_trials import config, job, merged
from trainables.core.runtime import EXPORT, Runtime
from trainables.core.trained_model import load_model
from trainables.core.trainer import Trainer
from trainables.data.features import load_cached_features
from trainables.jobs.job import run_job
from trainables.methods.base import METHODS

# Of losses over the first epoch, relative: float32 through a network, and what the optimiser makes
# of small gradients (`test_short_trials.TOLERANCE` has 1e-4 between two instruction sets).
CLOSE = 1e-3
TRAINS: dict[str, Any] = {"backbone": {"mode": "finetune"}, "training": {"epochs": 2}}
CPU = torch.device("cpu")


def trainer_on(device: torch.device, root: Path, cache: Path, **changes: Any) -> Trainer:
    return Trainer(config(root, **merged(TRAINS, changes)), 0, Runtime(str(device), 1, cache))


def test_it_is_the_trial_of_the_cpu(drawn: Path, shared_cache: Path, device: torch.device) -> None:
    """Losses, and what is told of the test classes, with crops that are the same."""
    local_values, there = (trainer_on(where, drawn, shared_cache) for where in (CPU, device))
    (one, *_), (other, *_) = list(local_values.train_epochs()), list(there.train_epochs())
    assert there.device.type == device.type
    assert other.metrics["train/loss"] == pytest.approx(one.metrics["train/loss"], rel=CLOSE)
    reported, again = (item.finish(("test",)).evaluations["test"] for item in (local_values, there))
    assert again == pytest.approx(reported, abs=0.1)


@pytest.mark.parametrize("method", list(METHODS))
def test_each_method_trains(
    method: str, drawn: Path, shared_cache: Path, device: torch.device
) -> None:
    trainer = trainer_on(device, drawn, shared_cache, method=method_options(method))
    first, last = list(trainer.train_epochs())
    final = trainer.finish(("test",)).evaluations["test"]
    assert last.metrics["train/loss"] < first.metrics["train/loss"]
    assert all(math.isfinite(value) for value in {**last.metrics, **final}.values())


def test_cached_features_are_close(drawn: Path, tmp_path: Path, device: torch.device) -> None:
    trial = config(drawn)
    local_values, there = (
        torch.from_numpy(load_cached_features(trial, tmp_path / str(where), where)[:])
        for where in (CPU, device)
    )
    torch.testing.assert_close(
        there, local_values, rtol=CLOSE, atol=CLOSE * float(local_values.abs().max())
    )


def test_a_trial_goes_on_elsewhere_and_its_model_answers_there(
    drawn: Path, shared_cache: Path, tmp_path: Path, device: torch.device
) -> None:
    """One epoch on the CPU, the next on the device; exported there, and read on both."""
    trial, folder = config(drawn, **TRAINS), tmp_path / "trial"
    *_, paused = run_job(job(trial, shared_cache, folder, until=1))
    assert paused["event"] == "paused"
    there = Runtime(str(device), 1, shared_cache, folder, checkpoint_seconds=0.0)
    epoch, final = run_job(job(trial, shared_cache, folder, runtime=there))
    assert (epoch["epoch"], final["provenance"]["resumed_from_epoch"]) == (2, 1)
    assert final["provenance"]["device"].startswith(device.type)
    images = torch.randint(256, (5, 24, 24, 3), dtype=torch.uint8)
    one, other = (load_model(folder / EXPORT, str(where)).embed(images) for where in (CPU, device))
    torch.testing.assert_close(other, one, rtol=CLOSE, atol=CLOSE)
