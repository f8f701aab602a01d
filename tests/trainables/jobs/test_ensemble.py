"""Embeddings of several folds side by side, against loops in float64; and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.oracles import retrieval
from tests.trainables import core_trials
from trainables.core.runtime import EXPORT, Runtime
from trainables.core.trained_model import Model, load_model
from trainables.core.trainer import Trainer
from trainables.data.splits import load_splits
from trainables.jobs.ensemble import Member, evaluate_ensemble
from trainables.jobs.job import run_job
from trainables.jobs.request import Fold, Job
from trainables.words.errors import TrialFailure
from trainables.words.metrics import AT_END

SIDES = {"cosine": "normsoftmax", "distance": "triplet_l2", "hyperbolic": "hypvit"}
FOLDS = 3


def trained(folder: Path, images: Path, cache: Path, **changes: Any) -> list[Member]:
    actual = []
    for fold in range(FOLDS):
        split = {"split": {"folds": FOLDS, "fold": fold}}
        job_request = core_trials.merged({"data": split, "training": {"epochs": 1}}, changes)
        config, member_folder = core_trials.config(images, **job_request), folder / str(fold)
        trainer = Trainer(config, 0, Runtime("cpu", 1, cache, member_folder))
        list(trainer.train_epochs())
        trainer.finish(("val",))
        actual.append(Member(config, 0, member_folder / EXPORT))
    return actual


@pytest.fixture(scope="module")
def plain(
    tmp_path_factory: pytest.TempPathFactory, drawn: Path, shared_cache: Path
) -> list[Member]:
    return trained(tmp_path_factory.mktemp("folds"), drawn, shared_cache)


def embedded(member: Member, cache: Path) -> tuple[Model, torch.Tensor, np.ndarray]:
    """By the exported model, from the images."""
    model = load_model(member.export, device="cpu")
    test = load_splits(member.config.data, cache).test
    pictures = np.stack([test.images[int(row)].numpy() for row in test.index])
    return model, model.embed(pictures), test.labels.numpy()


@pytest.mark.parametrize("side", SIDES)
def test_metrics_are_those_of_a_loop_over_the_concatenation(
    side: str, drawn: Path, shared_cache: Path, tmp_path: Path
) -> None:
    members = trained(tmp_path, drawn, shared_cache, loss={"name": SIDES[side]})
    similarity, labels = 0.0, np.zeros(0)
    for member in members:
        model, z, labels = embedded(member, shared_cache)
        x = z.double().numpy()
        if side == "cosine":
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
            similarity = similarity + x @ x.T / FOLDS
        elif side == "distance":
            if model.network.method.loss.retrieval.normalize:
                x = x / np.linalg.norm(x, axis=1, keepdims=True)
            similarity = similarity - ((x[:, None] - x[None]) ** 2).sum(-1)
        else:
            similarity = similarity + model.score(z, z).double().numpy() / FOLDS
    runtime = Runtime("cpu", 1, shared_cache, None)
    actual = evaluate_ensemble(members, runtime, ["recall_at_3"])
    assert set(actual) == {*AT_END, "recall_at_3"}
    assert actual["map_at_r"] == pytest.approx(retrieval.map_at_r(similarity, labels), abs=1e-6)
    r_precision = retrieval.r_precision(similarity, labels)
    assert actual["r_precision"] == pytest.approx(r_precision, abs=1e-6)
    for k in (1, 3):
        expected = retrieval.recall_at(similarity, labels, k)
        assert actual[f"recall_at_{k}"] == pytest.approx(expected, abs=1e-6)


def test_members_are_folds_of_one_configuration(
    plain: list[Member], shared_cache: Path, tmp_path: Path
) -> None:
    runtime = Runtime("cpu", 1, shared_cache, None)
    other = plain[1].config.model_copy(
        update={"optimizer": plain[1].config.optimizer.model_copy(update={"lr": 0.5})}
    )
    with pytest.raises(TrialFailure, match=r"differ in more than data\.split\.fold"):
        evaluate_ensemble([plain[0], replace(plain[1], config=other)], runtime)
    with pytest.raises(TrialFailure, match="at least two members, not 1"):
        evaluate_ensemble(plain[:1], runtime)
    gone = replace(plain[2], export=tmp_path / "gone.safetensors")
    with pytest.raises(TrialFailure, match=r"gone\.safetensors does not exist. Give --force"):
        evaluate_ensemble([*plain[:2], gone], runtime)


def test_a_job_adds_it_to_the_first_fold_s_result(
    plain: list[Member], shared_cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    shutil.copytree(plain[0].export.parent, folder)
    dump = plain[0].config.model_dump(mode="json")
    job_request = Job("t", dump, 0, Runtime("cpu", 1, shared_cache, folder), ("val", "test"))
    list(run_job(job_request))
    members = tuple(Fold(m.config.model_dump(mode="json"), 0, m.export) for m in plain)
    joint = replace(job_request, mode="ensemble", evaluate=("ensemble",), members=members)
    (final,) = run_job(replace(joint, metrics=("density",)))
    assert set(final["evaluations"]) == {"val", "test", "ensemble"}
    assert "density" in final["evaluations"]["ensemble"]
    (again,) = run_job(joint)
    assert again["evaluations"] == final["evaluations"], "what was known stays"
    with pytest.raises(TrialFailure, match="no model to evaluate"):
        empty = replace(joint.runtime, trial_dir=tmp_path / "empty")
        list(run_job(replace(joint, runtime=empty)))
