"""CIFAR's archives: batches of 32 × 32 pictures as raw bytes, binary or as Python pickled them.

Shape legend: N images.

A picture is 3,072 bytes: 1,024 of red, row by row, then green, then blue. A binary file has before
each the number of its class (CIFAR-100: first that of its superclass).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainables.data.files.lines import lines
from trainables.data.files.pickled import read_pickle
from trainables.errors import ConfigError

SIDE = 32
BYTES = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Layout:
    """One form of an archive.

    train, test: file names. names: the file with the class names.
    before: bytes before each picture, the last of which is the class; None: pickled.
    labels, listed: keys of the classes and of their names in a pickle.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    before: int | None = None
    labels: str = ""
    listed: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, *self.test, self.names)


def read_batch(path: Path, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [N, 32, 32, 3] uint8 and classes [N] int64.

    Raises:
        ConfigError: missing or damaged; names the file.
    """
    if layout.before is None:
        pixels, labels = _pickled(path, layout.labels)
    else:
        pixels, labels = _binary(path, layout.before)
    planes = pixels.reshape(-1, 3, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.int64)


def class_names(path: Path, layout: Layout) -> list[str]:
    """Raises ConfigError: missing or damaged, or a name twice."""
    if layout.before is None:
        listed = read_pickle(path).get(layout.listed)
        names = [str(name) for name in listed] if isinstance(listed, list) else []
    else:
        names = [text for _, text in lines(path)]
    if len(set(names)) != len(names) or not names:
        raise ConfigError(
            str(path), f"{len(set(names))} names of classes", "one for each", "Unpack it again"
        )
    return names


def _binary(path: Path, before: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError as error:
        raise ConfigError(
            str(path), f"{error.strerror}", "a file of the data set", "Unpack it again"
        ) from error
    if len(raw) % (before + BYTES) or not len(raw):
        raise ConfigError(
            str(path),
            f"{len(raw):,} bytes",
            f"a multiple of {before + BYTES:,}, a class and a picture each",
            "Unpack it again",
        )
    rows = raw.reshape(-1, before + BYTES)
    return rows[:, before:], rows[:, before - 1]


def _pickled(path: Path, key: str) -> tuple[np.ndarray, np.ndarray]:
    content = read_pickle(path)
    pixels, labels = content.get("data"), content.get(key)
    if (
        not isinstance(pixels, np.ndarray)
        or not isinstance(labels, list)
        or not all(isinstance(label, int) for label in labels)
        or pixels.shape != (len(labels), BYTES)
    ):
        raise ConfigError(
            str(path),
            f"{', '.join(content) or 'nothing'}",
            f"data, of {BYTES:,} bytes a picture, and {key}, a number each",
            "Unpack it again, or take the binary version",
        )
    return pixels, np.array(labels, np.int64)
