"""The digits that come with scikit-learn."""

from __future__ import annotations

import hashlib
from functools import cache as once
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Dataset, DataSource, Summary
from trainables.data.files.about import Count
from trainables.data.images import Images

NAMES = tuple("0123456789")
MOST = 16  # the largest value of a pixel


@DATASETS.register("digits")
class Digits(DataSource):
    """10 digits, 1,797 drawings by hand, 8 × 8 grey (Alpaydin and Kaynak, "Optical recognition of
    handwritten digits", UCI 1998): small enough for tests of classification."""

    REVISION: ClassVar[int] = 1

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        pixels, labels = _content()
        digest = hashlib.sha256(f"digits {cls.REVISION}".encode())
        digest.update(pixels.tobytes())
        digest.update(labels.tobytes())
        return digest.hexdigest()

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int:
        return len(NAMES)

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.load(config, cache)  # a file or a few, mapped and not read

    @classmethod
    def summary(cls, config: DataConfig) -> Summary | None:
        return Summary(None, {"all": Count(len(NAMES), len(_content()[1]))})

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        pixels, labels = _content()
        images = Images.same_size(torch.from_numpy(pixels.copy()))
        return Dataset(images, torch.from_numpy(labels.copy()), NAMES)


@once
def _content() -> tuple[np.ndarray, np.ndarray]:
    """Pixels [N, 8, 8] uint8, brought from 0 … 16 to 0 … 255, and labels [N] int64."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.images * 255 / MOST).round().astype(np.uint8)
    return pixels, found.target.astype(np.int64)
