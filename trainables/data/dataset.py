"""What a data set is, and the registry of them.

A data set is one class in one file: it gives a fingerprint of its content, cheaply enough for
planning, and loads images with their classes. Where the field fixes which classes are tested,
it gives these as `official`; otherwise `data.split` deals them.

    @DATASETS.register("mine")
    class Mine(DataSource):
        REVISION = 1

What it takes to read one that is a list of image files is in `files/fileset.py`. Other packages
join by an entry point in `ablate.data`; `ablate.testing.datasets` holds what each of them must do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from trainables.config.images import DataConfig
from trainables.config.registry import Registry
from trainables.data.files.data_set_markers import About, Count
from trainables.data.images import Images

DATASETS: Registry[type[DataSource]] = Registry(
    "data",
    "trainables.data.embedded.reader",
    "trainables.data.sets",
)

BOTH, QUERY, GALLERY = 0, 1, 2  # roles of an image where it is evaluated


@dataclass(frozen=True)
class Official:
    """Row numbers of a data set's own division.

    val: None, where validation classes are to be held out of the training classes.
    shared: whether the test shows other images of the classes that train, as where a data set is
        made for classification (CIFAR, ImageNet); else the two have no class in common.
    """

    train: Tensor
    test: Tensor
    val: Tensor | None = None
    shared: bool = False


@dataclass(frozen=True)
class Dataset:
    """All images of a data set, in an order that its content alone decides.

    labels: [N] int64 into `classes`.
    fingerprint: that of `DataSource`, where loading has computed it.
    roles: [N] int8, `QUERY` or `GALLERY` where an image is only looked for or only found, as in
        In-Shop; None: each image is looked for among all the others of its split.
    """

    images: Images
    labels: Tensor
    classes: tuple[str, ...]
    official: Official | None = None
    roles: Tensor | None = None
    fingerprint: str | None = None


def count_parts(dataset: Dataset) -> dict[str, Count]:
    """Count each part that there is, and queries and gallery where images have these roles."""
    labels, official, roles = dataset.labels, dataset.official, dataset.roles
    parts = {"all": labels}
    if official is not None:
        parts = {"train": labels[official.train], "test": labels[official.test]}
        if official.val is not None:
            parts["val"] = labels[official.val]
    if roles is not None:
        parts |= {"query": labels[roles == QUERY], "gallery": labels[roles == GALLERY]}
    return {name: Count(len(torch.unique(part)), len(part)) for name, part in parts.items()}


class DataSource(ABC):
    """One data set, by class methods: nothing is made of it.

    REVISION: raised by hand when its pixels or labels change.
    Config: of its section `data`; a subclass holds options of its own, which are None by default.
    ABOUT: what its makers tell of it; None: it has none, or comes with its package.
    """

    REVISION: ClassVar[int]
    Config: ClassVar[type[DataConfig]] = DataConfig
    ABOUT: ClassVar[About | None] = None

    @classmethod
    @abstractmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return SHA-256 (hex) of everything in the files that can change a trial's numbers."""

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        """Return the rows for a plan, which reads no pixel; None where only `load` knows them."""
        return None

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int | None:
        """Count the classes that `data.split` divides; None where only `load` knows them, or the
        data set has a division of its own."""
        rows = cls.without_pixels(config, cache)
        return None if rows is None or rows.official is not None else len(rows.classes)

    @classmethod
    @abstractmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        """Return decoded images and labels; decodes into `cache` on the first call.

        Photographs come with a short side of `config.stored_short_side`, or that of the file, and
        the frame `config.image_size / config.eval_side`.
        """


def resolve_data_config(section: Mapping[str, Any]) -> DataConfig:
    """Return the configuration of the data set that `section` names, with its own options.

    Raises:
        pydantic.ValidationError: an unknown option, or a value out of range.
        KeyError: there is no data set of that name.
    """
    return DATASETS[section.get("name", DataConfig().name)].Config.model_validate(section)


def fingerprint(config: DataConfig, cache: Path) -> str:
    """Return the fingerprint of the configured data set; decode nothing.

    Raises:
        ConfigError: the data folder is missing, unreadable or not what the data set is.
    """
    return DATASETS[config.name].fingerprint(config, cache)


def count_classes(config: DataConfig, cache: Path) -> int | None:
    """Count the classes that `data.split` is to deal; None: not known yet. Errors as above."""
    return DATASETS[config.name].class_count(config, cache)


def load_dataset(config: DataConfig, cache: Path) -> Dataset:
    """Return the configured data set, unsplit, with the evaluation crop of `data.eval_resize`."""
    dataset = DATASETS[config.name].load(config, cache)
    if not config.may_resample:
        return dataset
    frame = config.image_size / config.eval_side
    return replace(dataset, images=replace(dataset.images, frame=frame, resize=config.eval_side))
