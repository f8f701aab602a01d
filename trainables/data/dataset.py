"""What a data set is, and the registry of them.

A data set is one class in one file: it gives a fingerprint of its content, cheaply enough for
planning, and loads images with their classes. Where the field fixes which classes are tested,
it gives these as `official`; otherwise `data.split` deals them.

What it takes to read one that is a list of image files is in `files/fileset.py`. Other packages
join by an entry point in `ablate.data`; `ablate.testing.datasets` holds what each of them must do.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.config.images import DataConfig
from trainables.config.registry import Registry
from trainables.data.decode import Box
from trainables.data.files.data_set_markers import About, Count
from trainables.data.images import Images
from trainables.errors import ConfigError

DATASETS: Registry[type[DataSource]] = Registry(
    "data",
    "trainables.data.embedded.reader",
    "trainables.data.sets",
)

BOTH, QUERY, GALLERY = 0, 1, 2  # roles of an image where it is evaluated
PARTS = ("", "train", "val", "test")  # "": data.split deals it
ROLES = {"": BOTH, "query": QUERY, "gallery": GALLERY}


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


class Row(NamedTuple):
    """path: relative to the images' folder, with slashes."""

    path: str
    label: str
    part: str = ""
    role: str = ""
    box: Box | None = None


@dataclass(frozen=True)
class Index:
    """N images. base: the folder that the rows' paths are relative to."""

    base: Path
    rows: tuple[Row, ...]

    @staticmethod
    def from_rows(base: Path, rows: Iterable[Row], where: str) -> Index:
        """Build the index of the rows that the file `where` lists; a ConfigError refuses faults."""
        index = Index(base, tuple(_check_paths(rows, where)))
        if not index.rows:
            raise ConfigError(where, "it lists no images: unpack the data set again.")
        return index

    def to_plan_dataset(self) -> Dataset:
        """Return the rows as a data set, which can be divided and has no pixels."""
        classes = tuple(sorted({row.label for row in self.rows}))
        number = {name: label for label, name in enumerate(classes)}
        labels = np.array([number[row.label] for row in self.rows], np.int64)
        roles = np.array([ROLES[row.role] for row in self.rows], np.int8)
        official = self._build_official_division(classes, labels, roles)
        images = Images.from_equal_sizes(torch.zeros((0, 1, 1, 3), dtype=torch.uint8))
        roles_or_none = torch.from_numpy(roles) if roles.any() else None
        return Dataset(images, torch.from_numpy(labels), classes, official, roles_or_none)

    def _build_official_division(
        self, classes: tuple[str, ...], labels: np.ndarray, roles: np.ndarray
    ) -> Official | None:
        """Return the division that the parts give; None where they give none."""
        where = str(self.base)
        parts = np.array([PARTS.index(row.part) for row in self.rows], np.int8)
        if not parts.any():
            return None
        rows = {part: np.flatnonzero(parts == number) for number, part in enumerate(PARTS)}
        for part, inside in rows.items():
            without = int((roles[inside] == BOTH).sum())
            if 0 < without < len(inside):
                fault = f"{without:,} {part} images have no role, and others have one"
                raise ConfigError(where, f"{fault}: write query or gallery for each, or for none.")
        undivided, train, val, test = rows.values()
        for part in ("train", "test"):
            if not len(rows[part]):
                raise ConfigError(where, f"no images of part {part} are there: add some.")
        if len(undivided):
            fault = f"{len(undivided):,} images have no part, as {self.rows[undivided[0]].path}"
            raise ConfigError(where, f"{fault}: write train, val or test for each, or for none.")
        tested = np.unique(labels[test])
        shared = np.intersect1d(tested, labels[np.concatenate([train, val])])
        if 0 < len(shared) < len(tested):
            some = ", ".join(classes[label] for label in shared[:3])
            fault = f"{len(shared)} of {len(tested)} test classes train ({some}), not none or all"
            raise ConfigError(where, f"{fault}: move the images of a class to one side.")
        validation = torch.from_numpy(val) if len(val) else None
        return Official(
            torch.from_numpy(train), torch.from_numpy(test), validation, shared.size > 0
        )


def _check_paths(rows: Iterable[Row], where: str) -> Iterator[Row]:
    """Yield the rows, each checked before the next one is read: a few kilobytes of a Parquet file
    can stand for a hundred million rows of one path."""
    paths: set[str] = set()
    for row in rows:
        path = row.path
        if path in paths:
            raise ConfigError(where, f"it lists {path} twice: list each image once.")
        paths.add(path)
        if path.startswith("/") or (".." in path and ".." in re.split(r"[/\\]", path)):
            message = f"the path {path!r} must be relative to the images' folder and inside it."
            raise ConfigError(where, message)
        yield row


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
    """Count the classes that `data.split` divides; None where only `load` knows them, or the data
    set has a division of its own."""
    rows = DATASETS[config.name].without_pixels(config, cache)
    return None if rows is None or rows.official is not None else len(rows.classes)


def load_dataset(config: DataConfig, cache: Path) -> Dataset:
    """Return the configured data set, unsplit, with the evaluation crop of `data.eval_resize`."""
    dataset = DATASETS[config.name].load(config, cache)
    if not config.may_resample:
        return dataset
    frame = config.image_size / config.eval_side
    return replace(dataset, images=replace(dataset.images, frame=frame, resize=config.eval_side))
