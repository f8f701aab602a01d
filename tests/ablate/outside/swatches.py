"""A data set that is not ours: swatches of colour, whose shade is an option of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import torch

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Dataset, DataSource
from trainables.data.images import Images

CLASSES, EACH, SIDE = 12, 6, 16


@DATASETS.register("swatches")
class Swatches(DataSource):
    """Twelve colours with noise."""

    REVISION = 2

    class Config(DataConfig):
        """darker: halves of the brightness that are taken away."""

        name: Literal["swatches"] = "swatches"
        darker: int | None = None

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        return hashlib.sha256(f"swatches {cls._shade(config)}".encode()).hexdigest()

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset:
        return cls.load(config, cache)

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        draw = torch.Generator().manual_seed(0)
        base = torch.randint(0, 255, (CLASSES, 1, 1, 1, 3), generator=draw)
        noise = torch.randint(-40, 40, (CLASSES, EACH, SIDE, SIDE, 3), generator=draw)
        pixels = ((base + noise).clamp(0, 255) // 2 ** cls._shade(config)).to(torch.uint8)
        labels = torch.arange(CLASSES).repeat_interleave(EACH)
        names = tuple(f"colour {n:02d}" for n in range(CLASSES))
        return Dataset(Images.from_equal_sizes(pixels.flatten(0, 1)), labels, names)

    @staticmethod
    def _shade(config: DataConfig) -> int:
        return (config.darker or 0) if isinstance(config, Swatches.Config) else 0
