"""Where evaluation cuts its crop, at which size photographs are kept, and what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Resize

from tests.trainables import core_trials
from trainables.backbones import backbone as backbones
from trainables.backbones.weights import compute_weights_identity
from trainables.config.images import DataConfig
from trainables.core.identity import compute_config_hash, dump_identity
from trainables.data import features
from trainables.data.augment import cut_eval_images
from trainables.data.dataset import DATASETS, fingerprint, load_dataset
from trainables.data.features import build_features_key
from trainables.trial import TrialConfig

PLAIN: dict[str, Any] = {"mean": (0, 0, 0), "std": (1 / 255,) * 3, "device": "cpu"}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for c in range(2):
        (root / str(c)).mkdir()
        for i, (w, h) in enumerate([(120, 90), (80, 100), (96, 96)]):
            coarse = rng.integers(0, 256, (h // 6, w // 6, 3)).astype(np.uint8)
            picture = Image.fromarray(coarse).resize((w, h), Image.Resampling.BILINEAR)
            picture.save(root / str(c) / f"{i}.png")
    return root


def cut_crops(root: Path, cache: Path, **options: Any) -> torch.Tensor:
    """The evaluation crops of all photographs, 0 … 255."""
    config = DataConfig(name="folder", root=str(root), **options)
    images = load_dataset(config, cache).images
    rows = torch.arange(len(images))
    return cut_eval_images(images, rows, size=config.image_size, **PLAIN)


def resize_and_crop(root: Path, short: int, size: int) -> torch.Tensor:
    transform = Compose([Resize(short), CenterCrop(size)])
    files = sorted(root.glob("*/*.png"))
    crops = [np.array(transform(Image.open(file).convert("RGB"))) for file in files]
    return torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).float()


@pytest.mark.parametrize(("resize", "size"), [(56, 56), (64, 56), (60, 56), (None, 56)])
def test_evaluation_is_torchvisions_resize_and_centre_crop(
    resize: int | None, size: int, photographs: Path, tmp_path: Path
) -> None:
    crops = cut_crops(photographs, tmp_path, image_size=size, eval_resize=resize)
    wanted = resize_and_crop(photographs, resize or 64, size)
    torch.testing.assert_close(crops, wanted, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("stored", "resize"), [(80, 56), (72, None), (72, 64)])
def test_of_what_is_kept_larger_evaluation_takes_the_same_crop(
    stored: int, resize: int | None, photographs: Path, tmp_path: Path
) -> None:
    """Resized twice, so not to the bit."""
    crops = cut_crops(photographs, tmp_path, image_size=56, eval_resize=resize, stored_side=stored)
    wanted = resize_and_crop(photographs, resize or 64, 56)
    assert (crops - wanted).abs().mean() < 4
    other = resize_and_crop(photographs, 56 if resize != 56 else 64, 56)
    assert (crops - other).abs().mean() > 12


def test_features_of_before_are_found(drawn: Path, shared_cache: Path) -> None:
    config = core_trials.config(drawn)
    parts = {
        "data": fingerprint(config.data, shared_cache),
        "image_size": 32,
        "model": "mobilenetv3_small_050",
        "pool": "avg_max",
        "weights": compute_weights_identity(config.backbone),
        "device": "cpu",
        "revisions": [features.REVISION, backbones.REVISION, DATASETS["folder"].REVISION],
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    assert build_features_key(config, shared_cache) == f"folder-{digest[:24]}"


def test_options_that_are_off_leave_the_trial_what_it_was() -> None:
    dump = dump_identity(TrialConfig())["data"]
    assert set(dump) == {"name", "image_size", "split", "augment"}
    assert set(dump["augment"]) == {"crop_scale", "crop_ratio", "flip", "grey"}
    options = [
        {},
        {"eval_resize": 73},
        {"stored_side": 80},
        {"augment": {"resize": 73}},
        {"augment": {"interpolation": "bilinear"}},
        {"augment": {"interpolation": "bicubic"}},
        {"augment": {"pad": 4}},
    ]
    trials = [
        TrialConfig.model_validate({"data": {"name": "folder", **option}}) for option in options
    ]
    assert len({compute_config_hash(trial, "f") for trial in trials}) == len(trials)
    for trial in trials:
        assert TrialConfig.model_validate(trial.model_dump(mode="json")) == trial
