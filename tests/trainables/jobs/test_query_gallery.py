"""In-Shop: queries are looked for in the gallery alone: in trials, selection and ensembles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainables import core_trials
from tests.trainables.data import trees
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.splits import load_splits
from trainables.evaluation.metrics import evaluate_embeddings
from trainables.jobs.ensemble import Member, evaluate_ensemble
from trainables.trial import TrialConfig


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trees.inshop(tmp_path_factory.mktemp("inshop") / "inshop")


def config(root: Path, **split: Any) -> TrialConfig:
    data = {"name": "inshop", "root": str(root), "allow_partial": True, "image_size": 32}
    built = core_trials.config(root, training={"epochs": 2, "batch_size": 6, "per_class": 2})
    job_request = built.model_dump()
    job_request["data"] = {**data, "split": split}
    return TrialConfig.model_validate(job_request)


def runtime(folder: Path, trial: str | None = None) -> Runtime:
    return Runtime("cpu", 1, folder / "cache", None if trial is None else folder / trial)


def embedded(trainer: Trainer) -> torch.Tensor:
    trainer.network.eval()
    blocks = trainer.inputs.iterate_blocks(trainer.splits.test)
    with torch.inference_mode():
        return torch.cat([trainer.network.embed(block) for block in blocks])


def both_ways(trainer: Trainer) -> tuple[dict[str, float], dict[str, float]]:
    """Recall of 12 queries in 13 images, and of all 25 among each other."""
    z, labels = embedded(trainer), trainer.splits.test.labels
    score, names = trainer.network.retrieval_score(), ("recall_at_1", "map_at_r")
    gallery = z[12:], labels[12:]
    right = evaluate_embeddings(z[:12], labels[:12], score=score, metrics=names, gallery=gallery)
    return right, evaluate_embeddings(z, labels, score=score, metrics=names)


def test_a_trial_and_its_selection(root: Path, tmp_path: Path) -> None:
    trainer = Trainer(config(root, protocol="paper"), 0, runtime(tmp_path))
    *_, last = trainer.train_epochs()
    right, wrong = both_ways(trainer)
    assert right != wrong, "the two cannot be told apart here"
    assert {name: last.metrics[f"test/{name}"] for name in right} == right
    final = trainer.finish(("test",))
    best, _ = both_ways(trainer)
    assert {name: final.evaluations["test"][name] for name in best} == best


def test_held_out_classes_have_no_gallery(root: Path, tmp_path: Path) -> None:
    trainer = Trainer(config(root), 0, runtime(tmp_path))
    list(trainer.train_epochs())
    final = trainer.finish(("val", "test"))
    assert trainer.splits.val is not None and trainer.splits.val.queries is None
    right, _ = both_ways(trainer)
    assert {name: final.evaluations["test"][name] for name in right} == right


def test_an_ensemble(root: Path, tmp_path: Path) -> None:
    members, parts = [], []
    for fold in range(2):
        built = config(root, folds=2, fold=fold)
        trainer = Trainer(built, 0, runtime(tmp_path, f"fold{fold}"))
        list(trainer.train_epochs())
        trainer.finish(("val",))
        members.append(Member(built, 0, tmp_path / f"fold{fold}" / "best.safetensors"))
        parts.append(torch.nn.functional.normalize(embedded(trainer), dim=1))
    actual = evaluate_ensemble(members, runtime(tmp_path))
    z, labels = torch.cat(parts, 1), load_splits(built.data, tmp_path / "cache").test.labels
    gallery = z[12:], labels[12:]
    score = trainer.network.retrieval_score()
    names = ("recall_at_1", "map_at_r")
    right = evaluate_embeddings(z[:12], labels[:12], score=score, metrics=names, gallery=gallery)
    assert right != evaluate_embeddings(z, labels, score=score, metrics=names)
    assert {name: actual[name] for name in right} == right
