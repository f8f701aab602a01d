"""Photographs kept as pixels and encoded give the same bits; how they are kept, and when."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from tests.trainables.data.trees import photographs
from trainables.config.images import DataConfig
from trainables.data.dataset import load_dataset
from trainables.data.images import ImageReader
from trainables.data.pixel_store import EncodedImages, choose_store


def config(root: Path, **options: Any) -> DataConfig:
    return DataConfig(name="folder", root=str(root), image_size=64, **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Photographs, and what is awkward: upright by EXIF, transparent, grey, very long."""
    root = photographs(tmp_path / "photographs", 12)
    turned = Image.fromarray(np.arange(90 * 130 * 3, dtype=np.uint8).reshape(90, 130, 3))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(root / "class 0" / "turned.jpg", exif=exif)
    turned.convert("RGBA").save(root / "class 1" / "transparent.png")
    turned.convert("L").resize((300, 20)).save(root / "class 2" / "long.jpg")
    turned.resize((75, 75)).save(root / "class 3" / "square.png")
    return root


@pytest.mark.parametrize("side", [None, 100, "original"])
def test_both_are_the_same_pixels(side: Any, root: Path, tmp_path: Path) -> None:
    pixels, encoded = (
        load_dataset(config(root, store=store, stored_side=side), tmp_path / "cache")
        for store in ("pixels", "encoded")
    )
    assert isinstance(encoded.images, EncodedImages)
    assert encoded.images.flat.numel() < pixels.images.flat.numel()
    for name in ("heights", "widths"):
        assert torch.equal(getattr(pixels.images, name), getattr(encoded.images, name)), name
    for name in ("frame", "resize", "channels"):
        assert getattr(pixels.images, name) == getattr(encoded.images, name), name
    assert torch.equal(pixels.labels, encoded.labels) and pixels.classes == encoded.classes
    reader = ImageReader(encoded.images, torch.device("cpu"))
    for row, picture in enumerate(pixels.images):
        assert torch.equal(picture, encoded.images[row])
        images, (_, place) = reader.load_rows(torch.tensor([3, row]))
        assert torch.equal(images[int(place)], picture)


def test_auto_takes_pixels_where_they_fit(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    pixels = load_dataset(config(root), tmp_path / "other").images
    assert not isinstance(pixels, EncodedImages)
    disk = shutil.disk_usage(tmp_path)._replace(free=pixels.flat.numel())
    memory = psutil.virtual_memory()._replace(total=pixels.flat.numel() // 2)
    for module, name, value in (
        (shutil, "disk_usage", disk),
        (psutil, "virtual_memory", memory),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, lambda *_, value=value: value)
            assert choose_store(cache / "absent", 16, config(root)) == "encoded"
            load_dataset(config(root), cache)
    # It stays, though there is room now: what is there is taken.
    assert isinstance(load_dataset(config(root), cache).images, EncodedImages)
    load_dataset(config(root, store="pixels"), cache)
    assert not isinstance(load_dataset(config(root), cache).images, EncodedImages)
