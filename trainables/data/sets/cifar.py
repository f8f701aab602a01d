"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), as their python archives unpack.

Taken here as retrieval data: the official 10,000 test images are looked for among themselves, and
the 50,000 others train, less the classes that `data.split` holds out of them. Test and training
classes are the same, as for all data sets made for classification.

torchvision reads the archives, which are Python pickles, after checking their MD5 sums.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.cache import get_or_build
from trainables.data.dataset import DATASETS, Dataset, DataSource, Official
from trainables.data.files.data_set_markers import About, Count, locate_root
from trainables.data.files.hashes import hash_files
from trainables.data.images import Images, map_array
from trainables.errors import ConfigError

OFFERED = "https://www.cs.toronto.edu/~kriz/cifar.html"


class Cifar(DataSource):
    """A few files that hold all images.

    NAME: as it is registered. TRAIN, TEST, CLASSES: names of the files with training images, test
    images and names of the classes. READER: the class of torchvision.datasets that reads them.
    """

    NAME: ClassVar[str]
    REVISION = 1
    MAPS_FILES = True
    ABOUT: ClassVar[About]
    TRAIN: ClassVar[tuple[str, ...]]
    TEST: ClassVar[str]
    CLASSES: ClassVar[str]
    READER: ClassVar[str]

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return SHA-256 over the files, by the parts that they are."""
        root, names = locate_root(config, cls.ABOUT), [*cls.TRAIN, cls.TEST, cls.CLASSES]
        digest = hashlib.sha256(f"{cls.NAME} {cls.REVISION}".encode())
        for name, file_hash in hash_files(root, names, Path(cache) / cls.NAME).items():
            part = "test" if name == cls.TEST else "train"
            digest.update(f"\x1e{part}\x1f{file_hash}".encode())
        return digest.hexdigest()

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        root = locate_root(config, cls.ABOUT)
        folder = get_or_build(
            Path(cache) / cls.NAME / cls.fingerprint(config, cache)[:16],
            lambda fresh: cls.unpack_archive(root, fresh),
        )
        labels, is_test = (
            torch.from_numpy(np.load(folder / f"{name}.npy", allow_pickle=False))
            for name in ("labels", "tested")
        )
        train, test = (torch.nonzero(rows).squeeze(1) for rows in (~is_test, is_test))
        images = Images.from_equal_sizes(map_array(folder / "images.npy"))
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        return Dataset(images, labels, classes, Official(train, test, shared=True))

    @classmethod
    def unpack_archive(cls, root: Path, folder: Path) -> None:
        """Write pixels, labels and class names; classes are renumbered in alphabetical order."""
        from torchvision import datasets

        # torchvision looks into a subfolder of `root` with the archive's name, unless it is empty
        reader = type(cls.READER, (getattr(datasets, cls.READER),), {"base_folder": ""})
        try:
            parts = [reader(root, train=is_training) for is_training in (True, False)]
        except RuntimeError as error:
            fault = f"a file of {cls.ABOUT.title} in {root} has another MD5 sum than its makers'."
            raise ConfigError("data.root", f"{fault} Unpack the archive again.") from error
        names, labels = parts[0].classes, np.concatenate([part.targets for part in parts])
        np.save(folder / "images.npy", np.concatenate([part.data for part in parts]))
        np.save(folder / "labels.npy", np.argsort(np.argsort(names))[labels])
        np.save(folder / "tested.npy", np.repeat([False, True], [len(part) for part in parts]))
        (folder / "classes.json").write_text(json.dumps(sorted(names)))


@DATASETS.register("cifar10")
class Cifar10(Cifar):
    """10 classes of 6,000 pictures, 32 × 32."""

    NAME, READER = "cifar10", "CIFAR10"
    REVISION = 1
    TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
    TEST, CLASSES = "test_batch", "batches.meta"
    ABOUT = About(
        title="CIFAR-10",
        markers=(("data_batch_1", "batches.meta"),),
        folders=("cifar-10-batches-py", "cifar10"),
        offered=f"{OFFERED} (cifar-10-python.tar.gz)",
        classes="its images lie in a few files",
        counts={"train": Count(10, 50_000), "test": Count(10, 10_000)},
        counted="Krizhevsky 2009, section 3.1",
    )


@DATASETS.register("cifar100")
class Cifar100(Cifar):
    """100 classes of 600 pictures, 32 × 32; the fine classes."""

    NAME, READER = "cifar100", "CIFAR100"
    REVISION = 1
    TRAIN, TEST, CLASSES = ("train",), "test", "meta"
    ABOUT = About(
        title="CIFAR-100",
        markers=(("train", "test", "meta"),),
        folders=("cifar-100-python", "cifar100"),
        offered=f"{OFFERED} (cifar-100-python.tar.gz)",
        classes="its images lie in a few files",
        counts={"train": Count(100, 50_000), "test": Count(100, 10_000)},
        counted="Krizhevsky 2009, section 3.2",
    )
