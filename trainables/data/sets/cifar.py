"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), as their python archives unpack.

Taken here as retrieval data: the official 10,000 test images are looked for among themselves, and
the 50,000 others train, less the classes that `data.split` holds out of them. Test and training
classes are the same, as for all data sets made for classification.

A batch is a Python pickle with `data`, [N, 3072] uint8: for each image 1,024 values of red, row by
row, then green, then blue. A pickle is a program, so no function is called but those with which
Python 2 wrote numpy arrays.
"""

import hashlib
import json
import pickle
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.archives import (
    About,
    Count,
    build_damage_error,
    hash_files,
    join_names,
    locate_root,
    name_unreadable_file,
)
from trainables.data.cache import get_or_build
from trainables.data.dataset import DATASETS, Dataset, DataSource, Official, count_parts
from trainables.data.images import Images, map_array

SIDE = 32
ADMITTED = (
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
)
OFFERED = "https://www.cs.toronto.edu/~kriz/cifar.html"


class Cifar(DataSource):
    """A few files that hold all images.

    TRAIN, TEST, CLASSES: names of the files with training images, test images and names of the
    classes. LABELS, NAMES: keys of labels and class names in the pickles.
    """

    REVISION = 1
    MAPS_FILES = True
    ABOUT: ClassVar[About]
    TRAIN: ClassVar[tuple[str, ...]]
    TEST: ClassVar[str]
    CLASSES: ClassVar[str]
    LABELS: ClassVar[str]
    NAMES: ClassVar[str]

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return a SHA-256 of each file's content and part; the class names count as train."""
        root, files = cls.find_files(config)
        digest = hashlib.sha256(f"{config.name} {cls.REVISION}".encode())
        hashes = hash_files(root, [*files, cls.CLASSES], Path(cache) / config.name)
        for name, file_hash in hashes.items():
            part = "test" if name == cls.TEST else "train"
            digest.update(f"\x1e{part}\x1f{file_hash}".encode())
        return digest.hexdigest()

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        """Return images and official division from the cache; the first call unpacks them there."""
        root, files = cls.find_files(config)
        folder = get_or_build(
            Path(cache) / config.name / cls.fingerprint(config, cache)[:16],
            lambda fresh: cls.unpack_archive(root, files, fresh),
        )
        labels, is_test = (
            torch.from_numpy(np.load(folder / f"{name}.npy", allow_pickle=False))
            for name in ("labels", "tested")
        )
        train, test = (torch.nonzero(rows).squeeze(1) for rows in (~is_test, is_test))
        images = Images.from_equal_sizes(map_array(folder / "images.npy"))
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        dataset = Dataset(images, labels, classes, Official(train, test, shared=True))
        problems = cls.ABOUT.list_differences(count_parts(dataset))
        if problems and not config.allow_partial:
            raise cls.build_difference_error(root, problems)
        return dataset

    @classmethod
    def find_files(cls, config: DataConfig) -> tuple[Path, list[str]]:
        """Return the folder and its image files; refuse missing files unless data.allow_partial."""
        root, files = locate_root(config, cls.ABOUT), [*cls.TRAIN, cls.TEST]
        absent = [name for name in files if not (root / name).exists()]
        if absent and not config.allow_partial:
            raise cls.build_difference_error(
                root,
                [
                    f"{len(absent)} of {len(files)} files of images are missing "
                    f"({join_names(absent)})"
                ],
            )
        return root, [name for name in files if name not in absent]

    @classmethod
    def unpack_archive(cls, root: Path, files: list[str], folder: Path) -> None:
        """Write into `folder` pixels, labels and class names, and which images are for testing."""
        names = _read_pickle(root / cls.CLASSES).get(cls.NAMES)
        if not isinstance(names, list) or not names or len({*map(str, names)}) != len(names):
            raise build_damage_error(
                root / cls.CLASSES, "the names of the classes are missing or repeated"
            )
        batches = [cls.read_batch(root / name, len(names)) for name in files]
        images, labels = zip(*batches, strict=True)
        np.save(folder / "images.npy", np.concatenate(images))
        # argsort of argsort gives each name's alphabetical rank, which becomes the label
        np.save(folder / "labels.npy", np.argsort(np.argsort(names))[np.concatenate(labels)])
        is_test = np.repeat([name == cls.TEST for name in files], list(map(len, labels)))
        np.save(folder / "tested.npy", is_test)
        (folder / "classes.json").write_text(json.dumps(sorted(names)))

    @classmethod
    def read_batch(cls, path: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the images [N, 32, 32, 3] uint8 and labels [N] int64 of one file."""
        content = _read_pickle(path)
        pixels, labels = content.get("data"), content.get(cls.LABELS)
        if (
            not isinstance(pixels, np.ndarray)
            or pixels.dtype != np.uint8
            or not isinstance(labels, list)
            or not all(isinstance(label, int) and 0 <= label < classes for label in labels)
            or pixels.shape != (len(labels), 3 * SIDE * SIDE)
        ):
            raise build_damage_error(
                path,
                f"for each image the file must hold {3 * SIDE * SIDE:,} bytes in `data` and a "
                f"class number in `{cls.LABELS}`",
            )
        planes = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(planes), np.array(labels, np.int64)


# The implementation in C takes memory for the largest memo entry that a file names, up to 64 GiB.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in ADMITTED:
            raise pickle.UnpicklingError(f"the file asks for the function {module}.{name}")
        return super().find_class(module, name)


def _read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary of plain values and numpy arrays that a file holds."""
    with name_unreadable_file(path):
        raw = path.read_bytes()
    try:
        content = _Unpickler(BytesIO(raw), encoding="latin1").load()
        return {str(key): value for key, value in content.items()}
    except Exception as error:  # a damaged pickle fails with errors of any kind
        raise build_damage_error(path, f"the pickle cannot be read safely ({error})") from error


@DATASETS.register("cifar10")
class Cifar10(Cifar):
    """10 classes of 6,000 pictures, 32 × 32."""

    LABELS, NAMES = "labels", "label_names"
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

    LABELS, NAMES = "fine_labels", "fine_label_names"
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
