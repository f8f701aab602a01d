"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), as their binary or python archives unpack.

Taken here as retrieval data: the official 10,000 test images are looked for among themselves, and
the 50,000 others train, less the classes that `data.split` holds out of them. Test and training
classes are the same, as for all data sets made for classification.

A picture is 3,072 bytes, 32 × 32, taken whole: 1,024 of red, row by row, then green, then blue. A
binary file has before each the number of its class (CIFAR-100: first that of its superclass); the
python archives hold them as Python pickled them. A pickle is a program: no function is called but
the four with which Python 2 wrote numpy arrays.

Shape legend: N images.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.cache import get_or_build
from trainables.data.dataset import DATASETS, Dataset, DataSource, Official, count_parts
from trainables.data.files.data_set_markers import About, Count, build_absence_error, locate_root
from trainables.data.files.hashes import hash_files
from trainables.data.files.lists import build_damage_error, iterate_lines, name_unreadable_file
from trainables.data.images import Images, map_array

SIDE = 32
BYTES = 3 * SIDE * SIDE
BINARY = "unpack it again, or take the binary version"
OFFERED = "https://www.cs.toronto.edu/~kriz/cifar.html"
ADMITTED = (
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
)


@dataclass(frozen=True)
class Layout:
    """One form of an archive.

    train, test: file names. names: the file with the class names.
    before: bytes before each picture, the last of which is the class; None: pickled.
    labels, listed: keys of the classes and of their names in a pickle.
    """

    train: tuple[str, ...]
    test: str
    names: str
    before: int | None = None
    labels: str = ""
    listed: str = ""


class Cifar(DataSource):
    """A few files that hold all pictures.

    NAME: as it is registered. LAYOUTS: the forms in which its makers offer it.
    """

    NAME: ClassVar[str]
    REVISION = 1
    ABOUT: ClassVar[About]
    LAYOUTS: ClassVar[tuple[Layout, ...]]

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return SHA-256 over the files, by the parts that they are."""
        root, layout, batches = cls._find_files(config)
        hashes = hash_files(root, [*batches, layout.names], Path(cache) / cls.NAME)
        digest = hashlib.sha256(f"{cls.NAME} {cls.REVISION}".encode())
        for name, file_hash in hashes.items():
            part = "test" if name == layout.test else "train"
            digest.update(f"\x1e{part}\x1f{file_hash}".encode())
        return digest.hexdigest()

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.load(config, cache)  # a file or a few, mapped and not read

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        root, layout, batches = cls._find_files(config)
        folder = get_or_build(
            Path(cache) / cls.NAME / cls.fingerprint(config, cache)[:16],
            lambda fresh: _unpack_batches(root, layout, batches, fresh),
        )
        labels, is_test = (
            torch.from_numpy(np.load(folder / f"{name}.npy", allow_pickle=False))
            for name in ("labels", "tested")
        )
        train, test = (torch.nonzero(rows).squeeze(1) for rows in (~is_test, is_test))
        dataset = Dataset(
            Images.from_equal_sizes(map_array(folder / "images.npy")),
            labels,
            tuple(json.loads((folder / "classes.json").read_text())),
            Official(train, test, shared=True),
        )
        different = cls.ABOUT.list_differences(count_parts(dataset))
        if different and not config.allow_partial:
            raise cls.ABOUT.build_difference_error(different, str(root))
        return dataset

    @classmethod
    def _find_files(cls, config: DataConfig) -> tuple[Path, Layout, list[str]]:
        """Return the folder, its form, and the files of pictures that are there."""
        root = locate_root(config, cls.ABOUT)
        layout = next(form for form in cls.LAYOUTS if (root / form.train[0]).exists())
        files = (*layout.train, layout.test, layout.names)
        absent = [name for name in files if not (root / name).exists()]
        if absent and (not config.allow_partial or layout.names in absent):
            raise build_absence_error(absent, len(files), f"{cls.ABOUT.title} (files)", str(root))
        return root, layout, [name for name in files[:-1] if name not in absent]


BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
BINARY_BATCHES = tuple(f"{name}.bin" for name in BATCHES)


@DATASETS.register("cifar10")
class Cifar10(Cifar):
    """10 classes of 6,000 pictures, 32 × 32."""

    NAME = "cifar10"
    REVISION = 1
    ABOUT = About(
        title="CIFAR-10",
        markers=(("data_batch_1.bin", "batches.meta.txt"), ("data_batch_1", "batches.meta")),
        folders=("cifar-10-batches-bin", "cifar-10-batches-py", "cifar10"),
        offered=f"{OFFERED} (cifar-10-binary.tar.gz or cifar-10-python.tar.gz)",
        classes="its images lie in a few files",
        counts={"train": Count(10, 50_000), "test": Count(10, 10_000)},
        counted="Krizhevsky 2009, section 3.1",
    )
    LAYOUTS = (
        Layout(BINARY_BATCHES, "test_batch.bin", "batches.meta.txt", before=1),
        Layout(BATCHES, "test_batch", "batches.meta", labels="labels", listed="label_names"),
    )


@DATASETS.register("cifar100")
class Cifar100(Cifar):
    """100 classes of 600 pictures, 32 × 32; the fine classes."""

    NAME = "cifar100"
    REVISION = 1
    ABOUT = About(
        title="CIFAR-100",
        markers=(("train.bin", "fine_label_names.txt"), ("train", "test", "meta")),
        folders=("cifar-100-binary", "cifar-100-python", "cifar100"),
        offered=f"{OFFERED} (cifar-100-binary.tar.gz or cifar-100-python.tar.gz)",
        classes="its images lie in a few files",
        counts={"train": Count(100, 50_000), "test": Count(100, 10_000)},
        counted="Krizhevsky 2009, section 3.2",
    )
    LAYOUTS = (
        Layout(("train.bin",), "test.bin", "fine_label_names.txt", before=2),
        Layout(("train",), "test", "meta", labels="fine_labels", listed="fine_label_names"),
    )


def _read_batch(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures [N, 32, 32, 3] uint8 and classes [N] int64."""
    pixels: Any
    labels: Any
    if layout.before is None:
        content = _read_pickle(path)
        pixels, labels = content.get("data"), content.get(layout.labels)
        if (
            not isinstance(pixels, np.ndarray)
            or pixels.dtype != np.uint8
            or not isinstance(labels, list)
            or not all(isinstance(label, int) for label in labels)
            or pixels.shape != (len(labels), BYTES)
        ):
            fault = f"it must hold data, of {BYTES:,} bytes a picture, and a number each as "
            raise build_damage_error(path, f"{fault}{layout.labels}", BINARY)
    else:
        with name_unreadable_file(path):
            raw = np.fromfile(path, np.uint8)
        size = layout.before + BYTES
        if len(raw) % size or not len(raw):
            fault = f"{len(raw):,} bytes are no multiple of {size:,}, a class and a picture each"
            raise build_damage_error(path, fault)
        rows = raw.reshape(-1, size)
        pixels, labels = rows[:, layout.before :], rows[:, layout.before - 1]
    planes = pixels.reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), np.array(labels, np.int64)


# The implementation in Python: the one in C takes memory for the largest number of a memo entry
# that a file names, which can be 64 GiB.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in ADMITTED:
            raise pickle.UnpicklingError(f"it asks for the name {module}.{name}")
        return super().find_class(module, name)


def _read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary of plain values and numpy arrays that a file holds."""
    with name_unreadable_file(path):
        raw = path.read_bytes()
    try:
        content = _Unpickler(BytesIO(raw), encoding="latin1").load()
        return {str(key): value for key, value in content.items()}
    except Exception as error:  # a damaged pickle fails with errors of any kind
        fault = f"the pickle cannot be read safely ({error})"
        raise build_damage_error(path, fault, BINARY) from error


def _unpack_batches(root: Path, layout: Layout, batches: list[str], folder: Path) -> None:
    """Write pixels, labels and class names; classes are renumbered in the order of their names."""
    where = root / layout.names
    if layout.before is None:
        listed = _read_pickle(where).get(layout.listed)
        names = [str(name) for name in listed] if isinstance(listed, list) else []
    else:
        names = [text for _, text in iterate_lines(where)]
    if len(set(names)) != len(names) or not names:
        raise build_damage_error(where, "the names of the classes are missing or repeated")
    pixels, labels = zip(*(_read_batch(root / name, layout) for name in batches), strict=True)
    numbers = np.concatenate(labels)
    if numbers.size and (numbers.max() >= len(names) or numbers.min() < 0):
        fault = f"it has {len(names)} names, and an image has class {numbers.max()}"
        raise build_damage_error(where, fault)
    is_test = np.repeat([name == layout.test for name in batches], list(map(len, labels)))
    np.save(folder / "images.npy", np.concatenate(pixels))
    np.save(folder / "labels.npy", np.argsort(np.argsort(names))[numbers])
    np.save(folder / "tested.npy", is_test)
    (folder / "classes.json").write_text(json.dumps(sorted(names)))
