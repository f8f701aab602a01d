"""Cached features: the backbone's outputs, once, under a key of everything that changes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.data import trees
from trainables.backbones import backbone as backbones
from trainables.backbones.backbone import build_frozen_backbone
from trainables.data import features
from trainables.data.augment import cut_eval_images
from trainables.data.dataset import load_dataset
from trainables.data.features import build_features_key, load_cached_features
from trainables.trial import TrialConfig


@pytest.fixture
def config(tmp_path: Path) -> TrialConfig:
    trees.class_folders(tmp_path / "data", 4, 3, (40, 32))
    return TrialConfig.model_validate(
        {
            "data": {"name": "folder", "root": str(tmp_path / "data"), "image_size": 32},
            "backbone": {"name": "test_resnet", "weights": "none", "mode": "frozen"},
        }
    )


def changed(config: TrialConfig, part: str, **values: object) -> TrialConfig:
    return config.model_copy(update={part: getattr(config, part).model_copy(update=values)})


def test_equal_the_backbones_outputs(
    config: TrialConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "BATCH", 5)
    threads = torch.get_num_threads()
    cached = load_cached_features(config, tmp_path / "cache")
    assert torch.get_num_threads() == threads
    assert isinstance(cached, np.memmap) and cached.dtype == np.float32
    images = load_dataset(config.data, tmp_path / "cache").images
    backbone = build_frozen_backbone(config.backbone, 32)
    pixels: dict[str, Any] = {"mean": backbone.mean, "std": backbone.std, "device": "cpu"}
    with torch.no_grad():
        wanted = backbone(cut_eval_images(images, torch.arange(12), size=32, **pixels))
    torch.testing.assert_close(torch.from_numpy(cached), wanted, atol=1e-5, rtol=1e-4)


def test_key_changes_with_everything_that_changes_features(
    config: TrialConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [
        build_features_key(changed(config, "backbone", **values), tmp_path)
        for values in (
            {},
            {"pool": "avg"},
            {"name": "test_resnet2"},
            {"weights": "timm"},
            {"mean": (0.1, 0.2, 0.3)},
            {"channels": "bgr"},
            {"weights": "a.pth", "weights_sha256": "1" * 64},
            {"weights": "a.pth", "weights_sha256": "2" * 64},
        )
    ]
    keys.append(build_features_key(config, tmp_path, "cuda"))
    keys.append(build_features_key(changed(config, "data", image_size=48), tmp_path))
    monkeypatch.setattr(backbones, "REVISION", backbones.REVISION + 1)
    keys.append(build_features_key(config, tmp_path))
    Path(config.data.root or "", "class00", "0.png").unlink()
    keys.append(build_features_key(config, tmp_path))
    assert len(set(keys)) == len(keys)
    moved = changed(config, "backbone", weights="b.pth", weights_sha256="1" * 64)
    again = changed(config, "backbone", weights="a.pth", weights_sha256="1" * 64)
    assert build_features_key(moved, tmp_path) == build_features_key(again, tmp_path)
