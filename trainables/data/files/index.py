"""A data set as a table: an image a row, with its class, part, role and box.

Shape legend: N rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from trainables.data.dataset import BOTH, GALLERY, QUERY, Dataset, Official
from trainables.data.files.about import Count
from trainables.data.images import Images
from trainables.errors import ConfigError

PARTS = ("", "train", "val", "test")  # "": data.split deals it
ROLES = {"": BOTH, "query": QUERY, "gallery": GALLERY}
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


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
    def of(base: Path, rows: Iterable[Row], where: str) -> Index:
        """Args:
            where: the file that lists them, for messages.

        Raises:
            ConfigError: no row; a path twice, or one that leads out of the folder.
        """
        listed = list(_checked_rows(rows, where))
        if not listed:
            raise ConfigError(where, "no images", "a line for each", "Unpack the data set again")
        paths = tuple(row.path for row in listed)
        classes = tuple(sorted({row.label for row in listed}))
        number = {name: place for place, name in enumerate(classes)}
        boxed = any(row.box is not None for row in listed)
        return Index(
            base,
            paths,
            classes,
            np.array([number[row.label] for row in listed], np.int64),
            np.array([PARTS.index(row.part) for row in listed], np.int8),
            np.array([ROLES[row.role] for row in listed], np.int8),
            tuple(row.box for row in listed) if boxed else None,
        )

    def __len__(self) -> int:
        return len(self.paths)

    def kept(self, keep: np.ndarray) -> Index:
        """The rows where `keep` ([N] bool), with the classes that are left."""
        used = np.unique(self.labels[keep])
        renumbered = np.full(len(self.classes), -1)
        renumbered[used] = np.arange(len(used))
        return Index(
            self.base,
            tuple(path for path, keeps in zip(self.paths, keep, strict=True) if keeps),
            tuple(self.classes[label] for label in used),
            renumbered[self.labels[keep]],
            self.parts[keep],
            self.roles[keep],
            self.boxes and tuple(box for box, keeps in zip(self.boxes, keep, strict=True) if keeps),
        )

    def present(self) -> np.ndarray:
        """[N] bool: which images lie there. Folders are read once each, which on a network's
        storage is far less than asking for each file."""
        names: dict[str, set[str]] = {}
        found = np.zeros(len(self), bool)
        for row, path in enumerate(self.paths):
            folder, _, name = path.rpartition("/")
            if folder not in names:
                try:
                    with os.scandir(self.base / folder) as entries:
                        names[folder] = {entry.name for entry in entries if _is_file(entry)}
                except (FileNotFoundError, NotADirectoryError):
                    names[folder] = set()
            found[row] = name in names[folder]
        return found

    def counts(self) -> dict[str, Count]:
        """Of each part that there is; of a part with roles of queries and gallery too."""
        found: dict[str, Count] = {}
        for number, part in enumerate(PARTS):
            inside = self.parts == number
            if inside.any():
                found[part or "all"] = self._count(inside)
        for role, number in ROLES.items():
            if role and (self.roles == number).any():
                found[role] = self._count(self.roles == number)
        return found

    def _count(self, inside: np.ndarray) -> Count:
        return Count(len(np.unique(self.labels[inside])), int(inside.sum()))

    def official(self, where: str) -> Official | None:
        """The division that the parts give; None where they give none.

        Raises:
            ConfigError: some rows have a part and others have none, training or test images are
                missing, or some but not all test classes train.
        """
        if not self.parts.any():
            return None
        for number, part in enumerate(PARTS):
            inside = self.roles[self.parts == number]
            if inside.any() and not inside.all():
                raise ConfigError(
                    where,
                    f"{int((inside == BOTH).sum()):,} {part} images of no role beside others that "
                    "have one",
                    "query or gallery for each, or for none",
                )
        rows = {part: np.flatnonzero(self.parts == i) for i, part in enumerate(PARTS)}
        for part, expected in (("train", "training images"), ("test", "test images")):
            if not len(rows[part]):
                raise ConfigError(where, f"no {expected}", "images that train and others for test")
        if len(rows[""]):
            raise ConfigError(
                where,
                f"{len(rows['']):,} images of no part, as {self.paths[rows[''][0]]}",
                "train, val or test for each, or for none",
            )
        train, test = (set(self.labels[rows[part]].tolist()) for part in ("train", "test"))
        train |= set(self.labels[rows["val"]].tolist())
        both = train & test
        if both and both != test:
            some = ", ".join(self.classes[label] for label in sorted(both)[:3])
            raise ConfigError(
                where,
                f"{len(both)} of {len(test)} test classes among those that train ({some})",
                "none of them (retrieval), or all (other images of the same classes)",
                "Move the images of a class to one side",
            )
        return Official(
            torch.from_numpy(rows["train"]),
            torch.from_numpy(rows["test"]),
            torch.from_numpy(rows["val"]) if len(rows["val"]) else None,
            shared=bool(both),
        )

    def without_pixels(self) -> Dataset:
        """Return the rows as a data set, which can be divided and has no pixels."""
        none = Images.same_size(torch.zeros((0, 1, 1, 3), dtype=torch.uint8))
        roles = torch.from_numpy(self.roles) if self.roles.any() else None
        official = self.official(str(self.base))
        return Dataset(none, torch.from_numpy(self.labels), self.classes, official, roles)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether reading it ends: a FIFO or a device in the place of an image is none."""
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _checked_rows(rows: Iterable[Row], where: str) -> Iterator[Row]:
    """Yield the rows, each checked before the next one is read: a few kilobytes of a Parquet file
    can stand for a hundred million rows of one path."""
    seen: set[str] = set()
    for row in rows:
        path = row.path
        if path in seen:
            raise ConfigError(where, f"{path} twice", "each image once")
        seen.add(path)
        leaves = ".." in path and ".." in re.split(r"[/\\]", path)
        if leaves or path.startswith("/"):
            raise ConfigError(
                where, f"the path {path!r}", "paths relative to the images' folder, inside it"
            )
        yield row
