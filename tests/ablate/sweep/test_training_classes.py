"""A sweep whose trials are read on the training classes too."""

from __future__ import annotations

from pathlib import Path

from tests.ablate.driven import drain, table
from tests.ablate.real_sweeps import real
from tests.trainables import core_trials


def test_each_fold_is_read_of_its_own(tmp_path: Path) -> None:
    core_trials.draw(tmp_path / "images")
    made = real(tmp_path, folds=2, evaluate=["train"])
    drain(made)
    assert all("train/map_at_r" in row for row in table(made)) and len(table(made)) == 4
