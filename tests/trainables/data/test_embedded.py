"""The sets that ship: what is in them, and that damage is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from trainables.config.images import DataConfig
from trainables.data.dataset import count_classes, load_dataset
from trainables.data.embedded import reader
from trainables.data.embedded.reader import Typefaces
from trainables.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "images", "classes", "channels"),
    [("typefaces", 6163, 200, 1), ("emoji", 7370, 1526, 3)],
)
def test_what_is_in_them(
    name: str, images: int, classes: int, channels: int, tmp_path: Path
) -> None:
    data = load_dataset(DataConfig(name=name), tmp_path)
    assert len(data.images) == images == len(data.labels)
    assert len(data.classes) == classes == len(set(data.classes))
    assert list(data.classes) == sorted(data.classes)
    assert torch.equal(torch.unique(data.labels), torch.arange(classes))
    pixels = data.images[images // 2]
    assert pixels.shape == (64, 64, channels) and pixels.dtype == torch.uint8
    assert pixels.min() < 128 < pixels.max()
    assert count_classes(DataConfig(name=name), tmp_path) == classes


def test_a_damaged_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(reader.HERE / "manifest.json", tmp_path)
    raw = bytearray((reader.HERE / "typefaces.arrow").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "typefaces.arrow").write_bytes(raw)
    monkeypatch.setattr(Typefaces, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match="damaged: reinstall"):
        Typefaces.load(DataConfig(name="typefaces"), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.npy"))
