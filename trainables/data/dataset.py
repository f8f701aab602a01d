"""Define data sets, and their registry.

A data set is one class. It computes a fingerprint of its content, fast enough for
planning, and loads images with their classes. If the literature fixes the test classes, it returns
them as `official`; otherwise `data.split` divides the classes.

`fileset.py` is the base of data sets that are lists of image files. Other packages use the
entry point group `ablate.data`; `ablate.testing.datasets` checks them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.config.images import DataConfig
from trainables.data.archives import About, Count
from trainables.data.decode import Box, ImageSource
from trainables.data.images import Images
from trainables.words.errors import ConfigError
from trainables.words.registry import Registry

DATASETS: "Registry[type[DataSource]]" = Registry(
    "data", "trainables.data.sets.embedded", "trainables.data.sets"
)

BOTH, QUERY, GALLERY = 0, 1, 2  # roles of an image where it is evaluated
PARTS = ("", "train", "val", "test")  # "": data.split deals it
# the names by which folders and tables call the parts, in any capitals
PART_NAMES = {
    **{"train": "train", "training": "train", "test": "test", "testing": "test"},
    **{"val": "val", "valid": "val", "validation": "val"},
}
ROLES = {"": BOTH, "query": QUERY, "gallery": GALLERY}


@dataclass(frozen=True)
class Official:
    """A data set's own division, as row numbers.

    Attributes:
        val: None if validation classes are held out of the training classes.
        shared: whether test images show the training classes, as in data sets for classification
            (CIFAR, ImageNet); otherwise the classes are disjoint.
    """

    train: Tensor
    test: Tensor
    val: Tensor | None = None
    shared: bool = False


@dataclass(frozen=True)
class Dataset:
    """All images of a data set, in an order that depends on its content only.

    Attributes:
        labels: [N] int64 into `classes`.
        fingerprint: that of `DataSource`, if loading has computed it.
        roles: [N] int8, `QUERY` or `GALLERY`, if images have only one of these roles, as in
            In-Shop; None otherwise.
        further: [M, 2] int64, pairs of a query and a label, for queries with several relevant
            classes, each beyond the query's own label; None if there are none.
        notes: sentences on what was passed over, for plans and `ablate data check`.
    """

    images: Images
    labels: Tensor
    classes: tuple[str, ...]
    official: Official | None = None
    roles: Tensor | None = None
    fingerprint: str | None = None
    further: Tensor | None = None
    notes: tuple[str, ...] = ()


def count_parts(dataset: Dataset) -> dict[str, Count]:
    """Count classes and images of train, test and val, or of "all" without official division.

    Where images have roles, query and gallery are further parts.
    """
    labels, official, roles = dataset.labels, dataset.official, dataset.roles
    parts = {"all": labels}
    if official is not None:
        parts = {"train": labels[official.train]} if len(official.train) else {}
        parts["test"] = labels[official.test]
        if official.val is not None:
            parts["val"] = labels[official.val]
    if roles is not None:
        parts |= {"query": labels[roles == QUERY], "gallery": labels[roles == GALLERY]}
    return {name: Count(len(torch.unique(part)), len(part)) for name, part in parts.items()}


class Row(NamedTuple):
    """path: relative to the images' folder, with slashes. further: a query's further labels."""

    path: str
    label: str
    part: str = ""
    role: str = ""
    box: Box | None = None
    further: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """The images that a data set's file `where` lists.

    Attributes:
        base: the folder that the rows' paths are relative to.
        empty: class folders without an image.
        notes: sentences on what was passed over.
    """

    base: Path
    where: Path
    rows: Sequence[Row]
    empty: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def images(self) -> Iterator[ImageSource]:
        """Return the images to decode, in the order of the rows."""
        return (ImageSource(self.base / row.path, None, row.box) for row in self.rows)

    def check_paths(self) -> None:
        """Refuse an empty listing, and paths that are listed twice or lead out of `base`."""
        where, paths = str(self.where), set[str]()
        for row in self.rows:
            if row.path in paths:
                raise ConfigError(where, f"the list names {row.path} twice", "List each image once")
            if row.path.startswith("/") or ".." in row.path.split("/"):
                raise ConfigError(
                    where,
                    f"the path {row.path!r} leads out of the images' folder",
                    "Write a path that is relative to this folder",
                )
            if row.path != row.path.encode(errors="ignore").decode():  # has bytes not in UTF-8
                raise ConfigError(where, f"the path {row.path!r} is not UTF-8", "Rename the file")
            paths.add(row.path)
        if not paths:
            raise ConfigError(where, "the list names no images", "Unpack the data set again")

    def to_plan_dataset(self) -> Dataset:
        """Return a data set with labels, roles and official division, but without pixels."""
        classes = tuple(sorted({row.label for row in self.rows}))
        label_of = {name: label for label, name in enumerate(classes)}
        labels = np.array([label_of[row.label] for row in self.rows], np.int64)
        roles = np.array([ROLES[row.role] for row in self.rows], np.int8)
        official = self._build_official_division(classes, labels, roles)
        no_images = Images.from_equal_sizes(torch.zeros((0, 1, 1, 3), dtype=torch.uint8))
        roles_or_none = torch.from_numpy(roles) if roles.any() else None  # 0: no role
        # a partial data set may lack all images of a class
        pairs = [
            (number, label_of[name])
            for number, row in enumerate(self.rows)
            for name in row.further
            if name in label_of
        ]
        further = torch.tensor(pairs) if pairs else None
        return Dataset(
            no_images,
            torch.from_numpy(labels),
            classes,
            official,
            roles_or_none,
            further=further,
            notes=tuple(self.notes),
        )

    def _build_official_division(
        self, classes: tuple[str, ...], labels: np.ndarray, roles: np.ndarray
    ) -> Official | None:
        """Return the division into train, val and test that the rows state; None if none does.

        Refuse a division if only some rows have a part, or if only some test classes train. A data
        set without training images is for evaluation only.
        """
        where = str(self.base)
        parts = np.array([PARTS.index(row.part) for row in self.rows], np.int8)
        if not parts.any():  # all are 0: no row states a part
            return None
        # check that each image has a part, and that in a part all images have a role or none has
        members = {part: np.flatnonzero(parts == number) for number, part in enumerate(PARTS)}
        for part, rows in members.items():
            n_roleless = int((roles[rows] == BOTH).sum())  # BOTH: the row states no role
            if 0 < n_roleless < len(rows):
                raise ConfigError(
                    where,
                    f"{n_roleless:,} {part} images have no role, and all others have one",
                    "Write query or gallery for all, or for none",
                )
        undivided, train, val, test = members.values()  # row numbers, in the order of PARTS
        if not len(test):
            raise ConfigError(where, "no image has the part test", "Give it to some images")
        if len(undivided):
            path = self.rows[undivided[0]].path
            raise ConfigError(
                where,
                f"{len(undivided):,} images have no part, such as {path}",
                "Write train, val or test for all, or for none",
            )
        # check that all test classes train (classification) or none does (retrieval)
        tested = np.unique(labels[test])
        shared = np.intersect1d(tested, labels[np.concatenate([train, val])])
        if 0 < len(shared) < len(tested):
            names = ", ".join(classes[label] for label in shared[:3])
            raise ConfigError(
                where,
                f"{len(shared)} of {len(tested)} test classes have training images ({names})",
                "Give training images to all of them, or to none",
            )
        train_rows, val_rows, test_rows = map(torch.from_numpy, (train, val, test))
        return Official(train_rows, test_rows, val_rows if len(val) else None, shared.size > 0)


class DataSource(ABC):
    """Base class of data sets. All methods are class methods.

    REVISION: raised when pixels or labels change.
    Config: the section `data`; a subclass may add options, which are None by default.
    ABOUT: what its makers say about it; None if it comes with its package.
    MAPS_FILES: whether `load` only maps files and reads no pixels, so that plans may call it.
    """

    REVISION: ClassVar[int]
    Config: ClassVar[type[DataConfig]] = DataConfig
    ABOUT: ClassVar[About | None] = None
    MAPS_FILES: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return SHA-256 (hex) of everything in the files that can change a number."""

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        """Return the rows for a plan, without reading pixels; None if only `load` knows them."""
        return cls.load(config, cache) if cls.MAPS_FILES else None

    @classmethod
    def check_images(cls, config: DataConfig, cache: Path, fingerprint: str) -> str:
        """Refuse images that cannot be decoded, if decoding all of them takes a plan seconds only.

        Returns:
            Warnings of what the images show, or why they were not decoded; "" if there is neither.
        """
        return ""

    @classmethod
    def build_difference_error(cls, base: Path, problems: Iterable[str]) -> ConfigError:
        """Return the error for files in `base` that are not the complete data set."""
        return ConfigError(
            "data.root",
            f"{cls.ABOUT.title if cls.ABOUT else 'the data set'} in {base} differs from its list "
            f"or its makers' counts: {'; '.join(problems)}",
            "Unpack the data set again, or accept the difference with --allow-partial "
            "(data.allow_partial: true). Trials then differ from those of the complete data set",
        )

    @classmethod
    @abstractmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        """Return all images and labels; the first call decodes the images into `cache`.

        Photographs are stored with the short side `config.stored_short_side`, or in full size
        if that is None. Evaluation crops squares of `image_size / eval_side` of the short side.
        """


def resolve_data_config(section: Mapping[str, Any]) -> DataConfig:
    """Validate the section `data` of a spec, with the options of the data set that it names."""
    return DATASETS[section.get("name", DataConfig().name)].Config.model_validate(section)


def fingerprint(config: DataConfig, cache: Path) -> str:
    """Return a SHA-256 of the content of the configured data set; decode no image."""
    return DATASETS[config.name].fingerprint(config, cache)


def load_dataset(config: DataConfig, cache: Path) -> Dataset:
    """Return the configured data set, unsplit; `images.resize` is the side for evaluation."""
    dataset = DATASETS[config.name].load(config, cache)
    if not config.may_resample:  # images are stored at the size that evaluation needs
        return dataset
    frame = config.image_size / config.eval_side  # share of the short side that is cropped
    return replace(dataset, images=replace(dataset.images, frame=frame, resize=config.eval_side))
