"""Whole trials of IDML: what retrieval compares, in evaluation and in the exported model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainables.core_trials import config
from trainables.core import export
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.splits import load_splits
from trainables.evaluation.metrics import RANKING, evaluate_embeddings


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
    model = export.load_model(tmp_path / "best.safetensors", device="cpu")
    test = load_splits(trial.data, shared_cache).test
    z = model.embed(np.stack([test.images[int(row)].numpy() for row in test.index]))
    assert z.shape[1] == 16 + (5 if test_metric == "introspective" else 0)
    names = tuple(name for name in RANKING if name in reported)
    exported = evaluate_embeddings(z, test.labels, score=model.score, metrics=names)
    assert exported == pytest.approx({name: reported[name] for name in names}, abs=1e-6)
    s = z[:, :16] / z[:, :16].norm(dim=1, keepdim=True)
    plain = (model.score(z[:4], z) - s[:4] @ s.T).abs().max() < 1e-5
    assert plain == (test_metric == "semantic")
