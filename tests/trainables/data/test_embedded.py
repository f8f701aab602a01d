"""The sets that ship: what is in them, and that damage is told."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from trainables.config.images import DataConfig
from trainables.data.dataset import load_dataset
from trainables.data.embedded import reader
from trainables.data.embedded.reader import Typefaces
from trainables.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "images", "classes", "channels"),
    [("typefaces", 6163, 200, 1), ("emoji", 7370, 1526, 3)],
)
def test_what_is_in_them(
    tmp_path: Path, name: str, images: int, classes: int, channels: int
) -> None:
    data = load_dataset(DataConfig(name=name), tmp_path)
    assert len(data.images) == images == len(data.labels)
    assert len(data.classes) == classes == len(set(data.classes))
    assert list(data.classes) == sorted(data.classes)
    assert torch.equal(torch.unique(data.labels), torch.arange(classes))
    assert torch.bincount(data.labels).min() >= (4 if name == "emoji" else 2)
    assert data.images.channels == channels
    pixels = data.images[images // 2]
    assert pixels.shape == (64, 64, channels) and pixels.dtype == torch.uint8
    assert pixels.min() < 128 < pixels.max()
    again = load_dataset(DataConfig(name=name), tmp_path)
    assert again.images.flat.data_ptr() != data.images.flat.data_ptr()  # mapped, not kept
    assert torch.equal(again.labels, data.labels)


def test_manifest_pins_the_files() -> None:
    manifest = json.loads((reader.HERE / "manifest.json").read_text())
    for name, entry in manifest.items():
        raw = (reader.HERE / f"{name}.arrow").read_bytes()
        assert hashlib.sha256(raw).hexdigest() == entry["file_sha256"]
    assert "CC-BY-SA-4.0" in (reader.HERE / "ATTRIBUTION.md").read_text()


def test_a_damaged_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(reader.HERE / "manifest.json", tmp_path)
    raw = bytearray((reader.HERE / "typefaces.arrow").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "typefaces.arrow").write_bytes(raw)
    monkeypatch.setattr(Typefaces, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match="damaged: reinstall"):
        Typefaces.load(DataConfig(name="typefaces"), tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.npy"))
