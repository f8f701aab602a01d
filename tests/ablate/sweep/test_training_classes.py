"""A sweep whose trials are read on the training classes too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ablate.driven import drain, table
from tests.ablate.real_sweeps import real
from tests.trainables import core_trials
from trainables.core.trainer import Trainer


def test_asked_for_later_it_is_read_without_a_training_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core_trials.draw(tmp_path / "images")
    first = real(tmp_path, evaluate=["test"])
    drain(first)
    before = table(first)
    assert not any(key.startswith("train/") for row in before for key in row)

    monkeypatch.setattr(Trainer, "step", None)  # nothing may train from here on
    second = real(tmp_path, evaluate=["test", "train"], metrics=["relative_deviation"])
    assert second.sweep_id == first.sweep_id
    assert [entry.split()[1] for entry in drain(second)] == ["evaluate", "evaluate"]
    for old, new in zip(before, table(second), strict=True):
        assert {key: new[key] for key in old} == old
        assert 0 <= new["train/recall_at_1"] <= 1 and new["train/relative_deviation"] > 0
    assert real(tmp_path, evaluate=["train"]).exhausted


def test_each_fold_is_read_of_its_own(tmp_path: Path) -> None:
    core_trials.draw(tmp_path / "images")
    made = real(tmp_path, folds=2, evaluate=["train"])
    drain(made)
    assert all("train/map_at_r" in row for row in table(made)) and len(table(made)) == 4
