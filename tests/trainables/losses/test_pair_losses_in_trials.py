"""Pair losses in whole trials: batches as they ask, an export that retrieves as the trial did."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.trainables.core_trials import config, train
from trainables.core.export import load_model
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.losses.geometry import score


def test_batches_of_a_class_major_loss_stand_by_class(drawn: Path, shared_cache: Path) -> None:
    trainer = Trainer(config(drawn, loss={"name": "n_pair"}), 0, Runtime("cpu", 1, shared_cache))
    for batch in trainer.plan_batches(0):
        of_class = trainer.labels[batch].view(-1, trainer.config.training.per_class)
        assert (of_class == of_class[:, :1]).all()


def test_an_exported_hyperbolic_model_compares_in_the_ball(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = config(drawn, loss={"name": "hypvit"}, training={"epochs": 1})
    train(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    model = load_model(tmp_path / "best.safetensors", device="cpu")
    images = torch.randint(256, (5, 32, 32, 3), generator=torch.Generator().manual_seed(0))
    z = model.embed(images.to(torch.uint8))
    assert z.norm(dim=1).max() <= 2.3 + 1e-5
    found = model.score(z, z)
    torch.testing.assert_close(found, score(z, z, model.network.method.loss.geometry))
    assert torch.equal(found.argmax(1), torch.arange(5))
