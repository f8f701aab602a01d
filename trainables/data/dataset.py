"""What a data set is, and the registry of them.

A data set is one class in one file: it gives a fingerprint of its content, cheaply enough for
planning, and loads images with their classes. Where the field fixes which classes are tested,
it gives these as `official`; otherwise `data.split` deals them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import Tensor

from trainables.config.registry import Registry
from trainables.data.images import Images

if TYPE_CHECKING:
    from trainables.config.sections import DataConfig

DATASETS: Registry[DataSource] = Registry(
    "data", "trainables.data.embedded.reader", "trainables.data.folder"
)


@dataclass(frozen=True)
class Official:
    """Row numbers of a data set's own division, class-disjoint (CUB, Cars, SOP, In-Shop)."""

    train: Tensor
    test: Tensor


@dataclass(frozen=True)
class Dataset:
    """All images of a data set, in an order that its content alone decides.

    labels: [N] int64 into `classes`.
    """

    images: Images
    labels: Tensor
    classes: tuple[str, ...]
    official: Official | None = None


class DataSource(Protocol):
    """One data set. REVISION is raised by hand when its pixels or labels change."""

    REVISION: ClassVar[int]

    @staticmethod
    def fingerprint(config: DataConfig, cache: Path) -> str:
        """SHA-256 (hex) of everything in the files that can change a trial's numbers."""

    @staticmethod
    def class_count(config: DataConfig, cache: Path) -> int | None:
        """How many classes there are, told without decoding an image; None: only `load` tells, or
        the division of them is the data set's own."""

    @staticmethod
    def load(config: DataConfig, cache: Path) -> Dataset:
        """Decoded images and labels; decodes into `cache` on the first call.

        Photographs come with a short side of `config.kept` and the frame `config.image_size /
        config.evaluated`.
        """


def fingerprint(config: DataConfig, cache: Path) -> str:
    """Fingerprint of the configured data set; callable at plan time, decodes nothing.

    Raises:
        ConfigError: the data folder is missing, unreadable or no folder of class folders.
    """
    return DATASETS[config.name].fingerprint(config, cache)


def class_count(config: DataConfig, cache: Path) -> int | None:
    """Classes of the configured data set that `data.split` is to deal; None: not known yet.

    Raises:
        ConfigError: as `fingerprint`.
    """
    return DATASETS[config.name].class_count(config, cache)


def load_dataset(config: DataConfig, cache: Path) -> Dataset:
    """The configured data set, unsplit, with the evaluation crop that `data.eval_resize` says."""
    dataset = DATASETS[config.name].load(config, cache)
    if not config.resampled:
        return dataset
    frame = config.image_size / config.evaluated
    images = replace(dataset.images, frame=frame, resize=config.evaluated)
    return replace(dataset, images=images)
