"""Pair losses in whole trials: batches as they ask, the same bytes again, an export that retrieves
as the trial did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables.core_trials import config, timeless, train
from trainables.core.export import load
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.losses.geometry import score

PML = {"name": "pml", "class": "TripletMarginLoss", "options": {"triplets_per_anchor": 3}}
LOSSES: list[dict[str, Any]] = [
    {"name": "triplet_l2"},
    {"name": "margin", "nu": 0.01},
    {"name": "n_pair"},
    {"name": "hypvit"},
    PML,
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss["name"])
def test_a_trial_repeats_itself(
    loss: dict[str, Any], drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    """Also where pairs are drawn, which has a stream of its own at every step."""
    trial = config(drawn, loss=loss, training={"epochs": 2})
    found = []
    for name in ("one", "two"):
        torch.manual_seed(len(found))  # the global generator must not matter
        reports: list[Any] = []
        runtime = Runtime("cpu", 1, shared_cache, tmp_path / name)
        final = train(trial, 0, runtime, reports.append)
        export = (tmp_path / name / "best.safetensors").read_bytes()
        found.append(([timeless(r.metrics) for r in reports], final.evaluations, export))
    assert found[0] == found[1]
    metrics = found[0][0][-1]
    assert {"margin": "term/beta/value", "n_pair": "term/norm/value"}.get(
        loss["name"], "term/metric/value"
    ) in metrics
    if loss["name"] == "margin":
        assert "lr/margins" in metrics


def test_batches_of_a_class_major_loss_stand_by_class(drawn: Path, shared_cache: Path) -> None:
    trainer = Trainer(config(drawn, loss={"name": "n_pair"}), 0, Runtime("cpu", 1, shared_cache))
    for batch in trainer.batches(0):
        of_class = trainer.labels[batch].view(-1, trainer.config.training.per_class)
        assert (of_class == of_class[:, :1]).all()


def test_an_exported_hyperbolic_model_compares_in_the_ball(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = config(drawn, loss={"name": "hypvit"}, training={"epochs": 1})
    train(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    model = load(tmp_path / "best.safetensors", device="cpu")
    images = torch.randint(256, (5, 32, 32, 3), generator=torch.Generator().manual_seed(0))
    z = model.embed(images.to(torch.uint8))
    assert z.norm(dim=1).max() <= 2.3 + 1e-5
    found = model.score(z, z)
    torch.testing.assert_close(found, score(z, z, model.network.method.loss.geometry))
    assert torch.equal(found.argmax(1), torch.arange(5))
