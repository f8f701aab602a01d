"""What cannot work is said before the first step, and a start from data before it too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainables.core_trials import config
from trainables.core.identity import compute_config_hash
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.images import Images
from trainables.data.splits import Splits, Subset
from trainables.jobs.job import run_job
from trainables.jobs.request import Job
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError


def paper(drawn: Path) -> TrialConfig:
    return config(drawn, data={"split": {"protocol": "paper"}}, training={"epochs": 1})


def test_a_split_that_is_not_there(
    drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was taken"))
    runtime = Runtime("cpu", 1, shared_cache)
    job = Job("t", paper(drawn).model_dump(mode="json"), 0, runtime, ("test", "val"))
    with pytest.raises(ConfigError, match="evaluate: there is no split 'val'"):
        list(run_job(job))


def test_a_split_in_which_nothing_can_be_found() -> None:
    images = Images.from_equal_sizes(torch.zeros(5, 2, 2, dtype=torch.uint8))

    def subset(*labels: int) -> Subset:
        actual = torch.tensor(labels)
        return Subset(images, torch.arange(len(labels)), actual, tuple("abcde"[: len(set(labels))]))

    splits = Splits(subset(0, 0), subset(0, 1, 2), subset(0, 0, 1), "fingerprint")
    splits.require_splits(("train", "test"))
    with pytest.raises(ConfigError, match="split val: all 3 classes have one image each"):
        splits.require_splits(("test", "val"))


@pytest.mark.parametrize(
    ("labels", "queries", "fault"),
    [
        ((0, 0, 0), None, "the 3 images are of a single class"),
        ((0, 1, 1, 1), 2, "the 2 images are of a single class"),  # those of the gallery
        ((0, 0, 1), 1, "a single query"),
        ((0, 0, 1), None, ""),
        ((0, 1, 0, 1), 2, ""),
    ],
)
def test_a_test_that_could_give_only_0_or_100_is_refused_and_such_a_validation_is_not(
    labels: tuple[int, ...], queries: int | None, fault: str
) -> None:
    images = Images.from_equal_sizes(torch.zeros(4, 2, 2, dtype=torch.uint8))
    names = tuple("ab"[: max(labels) + 1])
    subset = Subset(images, torch.arange(len(labels)), torch.tensor(labels), names, queries)
    splits = Splits(subset, subset, subset, "fingerprint")
    splits.require_splits(("train", "val"))
    if not fault:
        splits.require_splits(("test",))
        return
    with pytest.raises(ConfigError, match=f"split test: .*{fault}"):
        splits.require_splits(("test",))
    Splits(subset, None, subset, "fingerprint", by_images=True).require_splits(("test",))


def test_pca_holds_also_without_checkpoints_to_resume(drawn: Path, shared_cache: Path) -> None:
    trial = config(drawn, embedding={"init": "pca"}, training={"epochs": 1})
    reports = []
    for resume in (True, False):
        trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache), resume=resume)
        reports.append(next(trainer.train_epochs()).metrics["term/metric/value"])
    assert reports[0] == reports[1]


def test_where_a_weights_file_lies_is_no_part_of_the_trial() -> None:
    one, two = (
        TrialConfig(backbone={"name": "resnet18", "weights": path, "weights_sha256": "0" * 64})
        for path in ("/a/weights.pt", "/b/weights.pt")
    )
    assert compute_config_hash(one, "data") == compute_config_hash(two, "data")
    other = TrialConfig(
        backbone={"name": "resnet18", "weights": "/a/weights.pt", "weights_sha256": "1" * 64}
    )
    assert compute_config_hash(one, "data") != compute_config_hash(other, "data")
