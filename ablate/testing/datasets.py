"""Check that a data set satisfies its interface:

    from ablate.testing import datasets

    def test_my_data(tmp_path: Path) -> None:
        datasets.check({"name": "mine", "root": str(made(tmp_path / "mine"))}, tmp_path / "work")

The fingerprint depends only on content. Loading is reproducible, and every class has images. No
image is on two sides of a split. Its own options are None by default, so that new options leave
existing trials unchanged. A missing folder is refused in one line. A small trial trains on it,
unless the data set has no training images.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainables.config.images import DataConfig, SplitConfig
from trainables.core.identity import dump_identity
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.data.dataset import (
    DATASETS,
    Dataset,
    fingerprint,
    load_dataset,
    resolve_data_config,
)
from trainables.data.splits import split_dataset
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

DataOptions = Mapping[str, Any]  # the section `data` of a trial: the name, the folder, options
SIDE = 32  # image size of the checks, in pixels
ROUNDING = 1e-6


def check(data: DataOptions, folder: Path) -> Dataset:
    """Run all checks of a data set, with caches in an empty folder."""
    check_options_are_off(str(data["name"]))
    fingerprint_is_of_content(data, folder)
    dataset = check_loads_alike(data, folder)
    if data.get("root") is not None:
        check_missing_folder_is_refused(data, folder)
    official = dataset.official
    if official is None or len(official.train):  # otherwise the data set is for evaluation only
        check_split(data, folder)
        check_trains(data, folder)
    return dataset


def check_options_are_off(name: str) -> None:
    """Check that the options that a data set adds are None by default and change no identity."""
    source = DATASETS[name]
    assert issubclass(source.Config, DataConfig), "Config is no subclass of DataConfig"
    assert isinstance(source.REVISION, int) and source.REVISION >= 1, "REVISION counts from 1"
    config = resolve_data_config({"name": name})
    assert config.name == name, f"the name of its Config is {config.name}, not {name}"
    options = set(type(config).model_fields) - set(DataConfig.model_fields)
    in_identity = sorted(options & set(dump_identity(config)))
    assert not in_identity, f"the defaults of these options must be None: {', '.join(in_identity)}"


def fingerprint_is_of_content(data: DataOptions, folder: Path) -> None:
    """Check that cache, image size, split and augmentation do not change the fingerprint."""
    first = fingerprint(_build_config(data), folder / "first")
    assert re.fullmatch("[0-9a-f]{64}", first), f"{first} is no SHA-256"
    other = {"image_size": 2 * SIDE, "split": {"seed": 1}, "augment": {"flip": 0.0}}
    second = fingerprint(_build_config({**data, **other}), folder / "second")
    assert first == second, "the fingerprint depends on more than the data"


def check_missing_folder_is_refused(data: DataOptions, folder: Path) -> None:
    """Check that a missing folder is refused in one line."""
    try:
        fingerprint(_build_config({**data, "root": str(folder / "absent")}), folder / "first")
    except ConfigError as error:
        assert "\n" not in str(error), str(error)
    else:
        raise AssertionError("a missing folder has a fingerprint")


def check_loads_alike(data: DataOptions, folder: Path) -> Dataset:
    """Check that images, labels and classes fit together and are the same when loaded again."""
    config = _build_config(data)
    dataset, again = (load_dataset(config, folder / cache) for cache in ("first", "second"))
    size, images, classes = len(dataset.labels), dataset.images, dataset.classes
    assert len(images) == size > 0, f"there are {len(images)} images and {size} labels"
    assert dataset.labels.dtype == torch.int64 and images.flat.dtype == torch.uint8
    assert torch.unique(dataset.labels).tolist() == list(range(len(classes))), (
        "labels must be 0 … number of classes − 1, and every class must have images"
    )
    assert list(classes) == sorted(set(classes)), "classes must be sorted and distinct"
    for row in (0, size // 2, size - 1):
        pixels = images[row]
        assert pixels.shape[2] == images.channels in (1, 3) and pixels.numel() > 0
    same = torch.equal(dataset.labels, again.labels) and torch.equal(images.flat, again.images.flat)
    assert same, "the data set differs when it is loaded again"
    assert classes == again.classes
    rows = DATASETS[config.name].without_pixels(config, folder / "first")
    assert rows is None or rows.classes == classes, "without pixels it has other classes"
    if dataset.roles is not None:
        assert dataset.roles.shape == (size,) and dataset.roles.dtype == torch.int8
    return dataset


def check_split(data: DataOptions, folder: Path) -> None:
    """Check that no image is on two sides of a split: by default, as in papers, and with folds."""
    dataset = load_dataset(_build_config(data), folder / "first")
    for config in (SplitConfig(), SplitConfig(protocol="paper"), SplitConfig(folds=2, fold=1)):
        parts = split_dataset(dataset, config, "")
        subsets = [part for part in (parts.train, parts.val, parts.test) if part is not None]
        rows = [row for subset in subsets for row in set(subset.index.tolist())]
        assert len(rows) == len(set(rows)), "an image is on two sides of the split"
        if dataset.official is not None:
            official = set(dataset.official.test.tolist())
            assert set(parts.test.index.tolist()) == official, "the test images are not official"
        elif parts.val is not None:  # without validation classes all sides share their classes
            assert not set(parts.train.classes) & set(parts.test.classes)
        if parts.val is not None:
            shared = set(parts.train.classes) & set(parts.val.classes)
            assert not shared, "a class is on the training and on the validation side"


def check_trains(data: DataOptions, folder: Path) -> None:
    """Check that a small model trains on the data, with finite metrics that are at most 1."""
    config = TrialConfig.model_validate(
        {
            "data": {"image_size": SIDE, **data},
            "backbone": {"name": "mobilenetv3_small_050", "weights": "none", "mode": "frozen"},
            "embedding": {"dim": 8},
            "training": {"epochs": 1, "batch_size": 8, "per_class": 1},
        }
    )
    trainer = Trainer(config, 0, Runtime("cpu", 1, folder / "first"))
    for report in trainer.train_epochs():
        assert math.isfinite(report.metrics["train/loss"])
    for part, metrics in trainer.finish(("val", "test")).evaluations.items():
        for name, value in metrics.items():
            assert math.isfinite(value) and value <= 1 + ROUNDING, f"{part}/{name}: {value}"


def _build_config(data: DataOptions) -> DataConfig:
    return resolve_data_config({"image_size": SIDE, **data})
