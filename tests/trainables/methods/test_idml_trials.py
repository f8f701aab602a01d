"""Whole trials of IDML: what retrieval compares, in evaluation and in the exported model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

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
    trial = config(
        drawn,
        backbone={"mode": "finetune"},
        method={
            "name": "idml",
            "uncertainty_dim": 5,
            "test_metric": test_metric,
            "uncertainty_gain": 0.1,
        },
        training={"epochs": 2},
    )
    trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache, tmp_path))
    list(trainer.train_epochs())
    told = trainer.finish(("test",)).evaluations["test"]
    model = export.load_model(tmp_path / "best.safetensors", device="cpu")
    test = load_splits(trial.data, shared_cache).test
    arrays = np.stack([test.images[int(row)].numpy() for row in test.index])
    z = model.embed(arrays)
    assert z.shape[1] == 16 + (5 if test_metric == "introspective" else 0)
    names = tuple(name for name in RANKING if name in told)
    found = evaluate_embeddings(z, test.labels, score=model.score, metrics=names)
    assert found == pytest.approx({name: told[name] for name in names}, abs=1e-6)
    score = model.score(z[:4], z)
    s = torch.nn.functional.normalize(z[:, :16], dim=1)
    same = torch.allclose(score, s[:4] @ s.T, atol=1e-5)
    assert same == (test_metric == "semantic")
