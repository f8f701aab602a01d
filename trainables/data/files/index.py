"""A data set as a table: an image a row, with its class, part, role and box.

Shape legend: N rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from trainables.data.dataset import BOTH, GALLERY, QUERY, Dataset, Official
from trainables.data.decode import Box
from trainables.data.images import Images
from trainables.errors import ConfigError

PARTS = ("", "train", "val", "test")  # "": data.split deals it
ROLES = {"": BOTH, "query": QUERY, "gallery": GALLERY}


class Row(NamedTuple):
    """path: relative to the images' folder, with slashes."""

    path: str
    label: str
    part: str = ""
    role: str = ""
    box: Box | None = None


@dataclass(frozen=True)
class Index:
    """N images. base: the folder that paths are relative to. parts: [N] into `PARTS`.

    labels: [N] int64 into `classes`, which are sorted. roles: [N] of `ROLES`. boxes: [N], or None.
    """

    base: Path
    paths: tuple[str, ...]
    classes: tuple[str, ...]
    labels: np.ndarray
    parts: np.ndarray
    roles: np.ndarray
    boxes: tuple[Box | None, ...] | None = None

    @staticmethod
    def from_rows(base: Path, rows: Iterable[Row], where: str) -> Index:
        """Build the index of the rows that the file `where` lists.

        Raises:
            ConfigError: no row; a path twice, or one that leads out of the folder.
        """
        listed = list(_check_paths(rows, where))
        if not listed:
            raise ConfigError(where, "it lists no images: unpack the data set again.")
        classes = tuple(sorted({row.label for row in listed}))
        number = {name: label for label, name in enumerate(classes)}
        boxed = any(row.box is not None for row in listed)
        return Index(
            base,
            tuple(row.path for row in listed),
            classes,
            np.array([number[row.label] for row in listed], np.int64),
            np.array([PARTS.index(row.part) for row in listed], np.int8),
            np.array([ROLES[row.role] for row in listed], np.int8),
            tuple(row.box for row in listed) if boxed else None,
        )

    def __len__(self) -> int:
        return len(self.paths)

    def select_rows(self, keep: np.ndarray) -> Index:
        """Return the rows where `keep` ([N] bool), with the classes that are left."""
        used, labels = np.unique(self.labels[keep], return_inverse=True)
        return Index(
            self.base,
            tuple(compress(self.paths, keep)),
            tuple(self.classes[label] for label in used),
            labels,
            self.parts[keep],
            self.roles[keep],
            self.boxes and tuple(compress(self.boxes, keep)),
        )

    def build_official_division(self, where: str) -> Official | None:
        """Return the division that the parts give; None where they give none.

        Raises:
            ConfigError: some rows have a part and others have none, training or test images are
                missing, or some but not all test classes train.
        """
        if not self.parts.any():
            return None
        rows = {part: np.flatnonzero(self.parts == number) for number, part in enumerate(PARTS)}
        for part, inside in rows.items():
            without = int((self.roles[inside] == BOTH).sum())
            if 0 < without < len(inside):
                fault = f"{without:,} {part} images have no role, and others have one"
                raise ConfigError(where, f"{fault}: write query or gallery for each, or for none.")
        undivided, train, val, test = rows.values()
        for part in ("train", "test"):
            if not len(rows[part]):
                raise ConfigError(where, f"no images of part {part} are there: add some.")
        if len(undivided):
            fault = f"{len(undivided):,} images have no part, as {self.paths[undivided[0]]}"
            raise ConfigError(where, f"{fault}: write train, val or test for each, or for none.")
        tested = np.unique(self.labels[test])
        shared = np.intersect1d(tested, self.labels[np.concatenate([train, val])])
        if 0 < len(shared) < len(tested):
            some = ", ".join(self.classes[label] for label in shared[:3])
            fault = f"{len(shared)} of {len(tested)} test classes train ({some}), not none or all"
            raise ConfigError(where, f"{fault}: move the images of a class to one side.")
        own = torch.from_numpy(val) if len(val) else None
        return Official(torch.from_numpy(train), torch.from_numpy(test), own, shared.size > 0)

    def to_plan_dataset(self) -> Dataset:
        """Return the rows as a data set, which can be divided and has no pixels."""
        images = Images.from_equal_sizes(torch.zeros((0, 1, 1, 3), dtype=torch.uint8))
        roles = torch.from_numpy(self.roles) if self.roles.any() else None
        official = self.build_official_division(str(self.base))
        return Dataset(images, torch.from_numpy(self.labels), self.classes, official, roles)


def _check_paths(rows: Iterable[Row], where: str) -> Iterator[Row]:
    """Yield the rows, each checked before the next one is read: a few kilobytes of a Parquet file
    can stand for a hundred million rows of one path."""
    seen: set[str] = set()
    for row in rows:
        path = row.path
        if path in seen:
            raise ConfigError(where, f"it lists {path} twice: list each image once.")
        seen.add(path)
        if path.startswith("/") or (".." in path and ".." in re.split(r"[/\\]", path)):
            message = f"the path {path!r} must be relative to the images' folder and inside it."
            raise ConfigError(where, message)
        yield row
