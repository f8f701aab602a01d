"""What every data set must do, whoever wrote it: each of ours, as `ablate.testing` asks it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ablate.testing import datasets
from tests.trainables.data import trees
from trainables.config.images import DataConfig
from trainables.data.dataset import load_dataset
from trainables.data.sets import embedded
from trainables.words.errors import ConfigError


@pytest.mark.parametrize(("name", "usual"), trees.FIRST)
def test_a_data_set_of_a_folder(name: str, usual: str, tmp_path: Path) -> None:
    root = trees.TREES[name][usual](tmp_path / usual)
    datasets.check({"name": name, "root": str(root), "allow_partial": True}, tmp_path / "work")


@pytest.mark.parametrize(
    ("name", "images", "classes"),
    [
        ("typefaces", 6163, 200),
        ("emoji", 7370, 1526),
        ("characters", 6163, 62),
        ("digits", 1797, 10),
    ],
)
def test_an_embedded_data_set(name: str, images: int, classes: int, tmp_path: Path) -> None:
    """Without training on all of it, which other tests do."""
    datasets.check_options_are_off(name)
    datasets.fingerprint_is_of_content({"name": name}, tmp_path)
    dataset = datasets.check_loads_alike({"name": name}, tmp_path)
    assert (len(dataset.images), len(dataset.classes)) == (images, classes)
    datasets.check_split({"name": name}, tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(embedded.HERE / "manifest.json", tmp_path)
    raw = bytearray((embedded.HERE / "typefaces.arrow").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "typefaces.arrow").write_bytes(raw)
    monkeypatch.setattr(embedded.Typefaces, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=r"damaged\. Reinstall"):
        load_dataset(DataConfig(name="typefaces"), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.npy"))
