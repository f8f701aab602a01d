"""What every data set must do, whoever wrote it: each of ours, as `ablate.testing` asks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.testing import datasets
from tests.trainables.data import trees


@pytest.mark.parametrize(("name", "usual"), trees.FIRST)
def test_a_data_set_of_a_folder(name: str, usual: str, tmp_path: Path) -> None:
    root = trees.TREES[name][usual](tmp_path / usual)
    datasets.check({"name": name, "root": str(root), "allow_partial": True}, tmp_path / "work")


@pytest.mark.parametrize("name", ["characters", "digits"])
def test_an_embedded_data_set(name: str, tmp_path: Path) -> None:
    """Without training on all of it, which other tests do."""
    datasets.check_options_are_off(name)
    datasets.fingerprint_is_of_content({"name": name}, tmp_path)
    datasets.check_loads_alike({"name": name}, tmp_path)
    datasets.check_split({"name": name}, tmp_path)
