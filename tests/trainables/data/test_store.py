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

from tests.trainables.core_trials import comparable, job
from tests.trainables.core_trials import config as trial_config
from tests.trainables.data.trees import photographs
from trainables.config.images import DataConfig
from trainables.core.identity import compute_config_hash
from trainables.data.dataset import load_dataset
from trainables.data.files.store import EncodedImages, choose_store
from trainables.errors import ConfigError
from trainables.jobs.job import run_job
from trainables.trial import TrialConfig


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
    for row, picture in enumerate(pixels.images):
        assert torch.equal(picture, encoded.images[row])
        flat, starts = encoded.images.load_batch(torch.tensor([3, row]), "cpu")
        assert torch.equal(flat[starts[1] :], picture.reshape(-1))


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_a_trial_is_the_same_to_the_bit(mode: str, drawn: Path, tmp_path: Path) -> None:
    def ends(store: str) -> dict[str, Any]:
        augment = {"interpolation": "bilinear"} if mode == "finetune" else {}
        data = {"store": store, "augment": augment}
        config = trial_config(drawn, data=data, backbone={"mode": mode}, training={"epochs": 2})
        folder = tmp_path / f"{mode}-{store}"
        return comparable(list(run_job(job(config, folder / "cache", folder / "trial")))[-1])

    assert ends("pixels") == ends("encoded")


def test_the_store_is_no_part_of_a_trial(root: Path) -> None:
    def hashed(store: str) -> str:
        data = {"name": "folder", "root": str(root), "store": store}
        return compute_config_hash(TrialConfig.model_validate({"data": data}), "")

    assert hashed("auto") == hashed("pixels") == hashed("encoded")
    side = {"name": "folder", "root": str(root), "stored_side": "original"}
    assert compute_config_hash(TrialConfig.model_validate({"data": side}), "") != hashed("auto")


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


def test_a_damaged_image_ends_the_first_pass(root: Path, tmp_path: Path) -> None:
    path = root / "class 0" / "00000.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    for store in ("pixels", "encoded"):
        with pytest.raises(ConfigError, match=r"00000.jpg: .*truncated"):
            load_dataset(config(root, store=store), tmp_path / "cache")
