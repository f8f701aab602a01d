"""What every data set must do, whoever wrote it: each of ours, as `ablate.testing` asks it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ablate.testing import datasets
from tests.trainables.data import trees
from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Dataset, DataSource
from trainables.data.images import Images


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


class Bad(DataSource):
    """A data set with one fault."""

    REVISION = 1
    fault = ""

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        size = config.image_size if cls.fault == "size" else 0
        return f"{size:064x}"

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        pixels = torch.randint(0, 255, (24, 8, 8, 3), dtype=torch.uint8)
        if cls.fault != "draws":
            pixels = torch.zeros_like(pixels)
        names = [f"{n}" for n in range(6)]
        if cls.fault == "order":
            names.reverse()
        labels = torch.arange(24) % (5 if cls.fault == "empty" else 6)
        return Dataset(Images.from_equal_sizes(pixels), labels, tuple(names))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("size", "of more than the data"),
        ("draws", "loaded again it is another"),
        ("order", "not in order"),
        ("empty", "a class without images"),
        ("option", "width: options whose defaults are not None"),
        ("absent", "a folder that is not there has a fingerprint"),
    ],
)
def test_a_fault_is_found(
    fault: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wide(DataConfig):
        width: int = 3

    monkeypatch.setitem(DATASETS._components, "bad", Bad)
    monkeypatch.setattr(Bad, "fault", fault)
    monkeypatch.setattr(Bad, "Config", Wide if fault == "option" else DataConfig)
    with pytest.raises(AssertionError, match=message):
        datasets.check({"name": "bad", "root": str(tmp_path)}, tmp_path / "work")
