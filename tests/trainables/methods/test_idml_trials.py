"""Whole trials of IDML: what retrieval compares, in evaluation and in the exported model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.core_trials import config
from trainables.core.loss_terms import CALIBRATION_BATCHES
from trainables.core.runtime import Runtime
from trainables.core.trained_model import load_model
from trainables.core.trainer import Trainer
from trainables.data.splits import load_splits
from trainables.evaluation.metrics import RANKING, evaluate_embeddings
from trainables.methods.base import METHODS


@pytest.mark.parametrize("test_metric", ["semantic", "introspective"])
def test_evaluation_and_export_agree(
    test_metric: str, drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    method = {
        "name": "idml",
        "uncertainty_dim": 5,
        "test_metric": test_metric,
        "uncertainty_gain": 0.1,
    }
    trial = config(drawn, backbone={"mode": "finetune"}, method=method, training={"epochs": 2})
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    list(trainer.train_epochs())
    reported = trainer.finish(("test",)).evaluations["test"]
    model = load_model(tmp_path / "best.safetensors", device="cpu")
    test = load_splits(trial.data, shared_cache).test
    z = model.embed(np.stack([test.images[int(row)].numpy() for row in test.index]))
    assert z.shape[1] == 16 + (5 if test_metric == "introspective" else 0)
    names = tuple(name for name in RANKING if name in reported)
    exported = evaluate_embeddings(z, test.labels, score=model.score, metrics=names)
    assert exported == pytest.approx({name: reported[name] for name in names}, abs=1e-6)
    s = z[:, :16] / z[:, :16].norm(dim=1, keepdim=True)
    plain = (model.score(z[:4], z) - s[:4] @ s.T).abs().max() < 1e-5
    assert plain == (test_metric == "semantic")


def run(drawn: Path, cache: Path, folder: Path | None = None, **method: Any) -> Trainer:
    options = {"name": "idml", "uncertainty_dim": 5, "mixing": "mixup", **method}
    trial = config(drawn, backbone={"mode": "finetune"}, method=options, training={"epochs": 2})
    return Trainer(trial, 0, Runtime("cpu", 1, cache, folder, checkpoint_seconds=1e-9))


@pytest.mark.slow
def test_u_starts_where_it_is_asked_to_and_a_resumed_trial_goes_on(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    whole = run(drawn, shared_cache, uncertainty_start=0.1)
    before = whole.network.state_dict()["method.uncertainty.weight"].clone()
    whole.measure_initial_scales()
    started = whole.network.state_dict()["method.uncertainty.weight"].clone()
    assert not torch.equal(started, before)
    with torch.no_grad():
        batches = whole.plan_batches(0)[:CALIBRATION_BATCHES]
        features = [whole._load_features(step, batch)[0] for step, batch in enumerate(batches)]
        u = whole.network.method.uncertainty(torch.cat(features))  # type: ignore[operator]
    assert float(u.norm(dim=-1).mean()) == pytest.approx(0.1, rel=1e-5)

    whole = run(drawn, shared_cache, uncertainty_start=0.1)
    list(whole.train_epochs())
    next(run(drawn, shared_cache, tmp_path, uncertainty_start=0.1).train_epochs(until=1))
    paused = run(drawn, shared_cache, tmp_path, uncertainty_start=0.1)
    assert paused.epoch == 0, "the first epoch was not saved"
    list(paused.train_epochs(until=1))
    resumed = run(drawn, shared_cache, tmp_path, uncertainty_start=0.1)
    assert resumed.epoch == 1
    list(resumed.train_epochs())
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name


def test_a_start_of_u_leaves_the_neutral_method_at_the_plain_loss(
    drawn: Path, shared_cache: Path
) -> None:
    off = METHODS["idml"].NEUTRAL
    trainers = [run(drawn, shared_cache, **off, uncertainty_start=start) for start in (None, 0.1)]
    plain = config(drawn, backbone={"mode": "finetune"}, training={"epochs": 2})
    trainers.append(Trainer(plain, 0, Runtime("cpu", 1, shared_cache)))
    states = []
    for trainer in trainers:
        list(trainer.train_epochs())
        states.append(trainer.network.state_dict())
    for name, tensor in states[-1].items():
        assert torch.equal(tensor, states[0][name]) and torch.equal(tensor, states[1][name]), name
