"""The base of CIFAR-10 and CIFAR-100: a few files that hold all pictures.

Taken here as retrieval data: the official 10,000 test images are looked for among themselves, and
the 50,000 others train, less the classes that `data.split` holds out of them. Test and training
classes are the same, as for all data sets made for classification.

Pictures are taken whole, 32 × 32, as the embedded drawings are.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.cache import published
from trainables.data.dataset import Dataset, DataSource, Official
from trainables.data.files.about import Count
from trainables.data.files.batches import Layout, class_names, read_batch
from trainables.data.files.counts import absence, difference, differences
from trainables.data.files.hashes import file_hashes
from trainables.data.files.places import root_of
from trainables.data.images import Images, mapped
from trainables.errors import ConfigError


class Archive(DataSource):
    """NAME: as it is registered. LAYOUTS: the forms in which its makers offer it."""

    NAME: ClassVar[str]
    REVISION: ClassVar[int] = 1
    LAYOUTS: ClassVar[tuple[Layout, ...]]

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """SHA-256 over the files, by the parts that they are."""
        root, layout, files = cls._found(config)
        return cls._digest(root, layout, files, Path(cache))

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int | None:
        return None

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.load(config, cache)  # a file or a few, mapped and not read

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        assert cls.ABOUT is not None
        root, layout, files = cls._found(config)
        key = cls._digest(root, layout, files, Path(cache))[:16]
        folder = published(
            Path(cache) / cls.NAME / key, lambda fresh: _unpack(root, layout, files, fresh)
        )
        labels = torch.from_numpy(np.load(folder / "labels.npy", allow_pickle=False))
        tested = torch.from_numpy(np.load(folder / "tested.npy", allow_pickle=False))
        train, test = (torch.nonzero(rows).squeeze(1) for rows in (~tested, tested))
        found = {
            part: Count(len(torch.unique(labels[rows])), len(rows))
            for part, rows in (("train", train), ("test", test))
        }
        different = differences(found, cls.ABOUT)
        if different and not config.allow_partial:
            raise difference(different, cls.ABOUT, str(root))
        return Dataset(
            Images.same_size(mapped(folder / "images.npy")),
            labels,
            tuple(json.loads((folder / "classes.json").read_text())),
            Official(train, test, shared=True),
        )

    @classmethod
    def counts(cls, config: DataConfig) -> tuple[Path, dict[str, Count]]:
        """The folder, and what each part of it holds; files that are not there count as empty."""
        given = config.model_copy(update={"allow_partial": True})
        root, layout, _ = cls._found(given)
        parts = {"train": layout.train, "test": layout.test}
        return root, {part: _count(root, names, layout) for part, names in parts.items()}

    @classmethod
    def _found(cls, config: DataConfig) -> tuple[Path, Layout, list[str]]:
        """The folder, its form, and the files of it that are there.

        Raises:
            ConfigError: no such folder; files missing, if that is not allowed.
        """
        assert cls.ABOUT is not None
        root = root_of(config, cls.ABOUT)
        layout = next(
            each for each in cls.LAYOUTS if (root / each.train[0]).exists()
        )  # root_of has seen it
        absent = [name for name in layout.files if not (root / name).exists()]
        if absent and (not config.allow_partial or layout.names in absent):
            raise absence(absent, len(layout.files), f"{cls.ABOUT.title} (files)", str(root))
        return root, layout, [name for name in layout.files if name not in absent]

    @classmethod
    def _digest(cls, root: Path, layout: Layout, files: list[str], cache: Path) -> str:
        hashes = file_hashes(root, files, cache / cls.NAME)
        digest = hashlib.sha256(f"{cls.NAME} {cls.REVISION}".encode())
        for name in files:
            part = "test" if name in layout.test else "train"
            digest.update(f"\x1e{part}\x1f{hashes[name]}".encode())
        return digest.hexdigest()


def _count(root: Path, names: tuple[str, ...], layout: Layout) -> Count:
    there = [root / name for name in names if (root / name).exists()]
    labels = np.concatenate([[], *(read_batch(path, layout)[1] for path in there)])
    return Count(len(np.unique(labels)), len(labels))


def _unpack(root: Path, layout: Layout, files: list[str], folder: Path) -> None:
    """Write pixels, labels and class names; classes are renumbered in the order of their names."""
    names = class_names(root / layout.names, layout)
    batches = [name for name in files if name != layout.names]
    read = [read_batch(root / name, layout) for name in batches]
    labels = np.concatenate([each for _, each in read])
    if labels.size and (labels.max() >= len(names) or labels.min() < 0):
        raise ConfigError(
            str(root / layout.names),
            f"{len(names)} names, and an image of class {labels.max()}",
            "a name for each class",
            "Unpack the data set again",
        )
    order = np.argsort(np.argsort(names))
    tested = [
        np.full(len(each), name in layout.test)
        for name, (_, each) in zip(batches, read, strict=True)
    ]
    np.save(folder / "images.npy", np.concatenate([pixels for pixels, _ in read]))
    np.save(folder / "labels.npy", order[labels])
    np.save(folder / "tested.npy", np.concatenate(tested))
    (folder / "classes.json").write_text(json.dumps(sorted(names)))
