"""The training classes read at the end of a trial: by the evaluator of the others, once, from
images as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import trainables
from tests.oracles import retrieval, structure
from tests.trainables import core_trials
from tests.trainables.core_trials import comparable, job
from trainables.data.splits import Splits, load_splits
from trainables.jobs.job import run_job
from trainables.trial import TrialConfig

MORE = ("relative_deviation", "gaussian_p")


def augmented(root: Path) -> TrialConfig:
    """One whose training images are not what evaluation takes."""
    return core_trials.config(
        root,
        backbone={"mode": "finetune"},
        data={"image_size": 20, "augment": {"crop_scale": [0.2, 0.4], "flip": 1.0}},
        training={"epochs": 2},
    )


def final(given: Any) -> dict[str, Any]:
    return list(run_job(given))[-1]


def embedded(export: Path, root: Path, splits: Splits) -> tuple[np.ndarray, np.ndarray]:
    """Of the training classes' files, by the public interface of a trained model."""
    files = [(c, path) for c in splits.train.classes for path in sorted((root / c).iterdir())]
    pictures = [Image.open(path) for _, path in files]
    labels = np.array([splits.train.classes.index(c) for c, _ in files])
    return trainables.load(export).embed(pictures).double().numpy(), labels


def test_the_numbers_by_loops_over_the_files(
    drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    trial = augmented(drawn)
    job_request = job(
        trial, shared_cache, tmp_path, evaluate=("val", "test", "train"), metrics=MORE
    )
    actual = final(job_request)["evaluations"]["train"]
    splits = load_splits(trial.data, shared_cache)
    z, y = embedded(tmp_path / "best.safetensors", drawn, splits)
    assert len(y) == len(splits.train) > 0
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    similarity = z @ z.T
    assert actual["recall_at_1"] == pytest.approx(retrieval.recall_at(similarity, y, 1), abs=1e-9)
    assert actual["map_at_r"] == pytest.approx(retrieval.map_at_r(similarity, y), abs=1e-9)
    assert actual["relative_deviation"] == pytest.approx(structure.relative_deviation(z, y), 1e-4)
    assert actual["gaussian_p"] == pytest.approx(np.mean(structure.gaussian_p(z, y)), 1e-3)


@pytest.mark.slow
def test_nothing_else_of_the_trial_changes(drawn: Path, shared_cache: Path, tmp_path: Path) -> None:
    trial = augmented(drawn)
    alone = final(job(trial, shared_cache, tmp_path / "alone"))
    also = final(job(trial, shared_cache, tmp_path / "also", evaluate=("val", "test", "train")))
    assert also["evaluations"].pop("train") and also["classes"].pop("train")
    assert comparable(also) == comparable(alone)
    exports = [(tmp_path / name / "best.safetensors").read_bytes() for name in ("alone", "also")]
    assert exports[0] == exports[1]
