"""The embedded data sets: decoded once into the cache, memory-mapped from there; and the digits
that come with scikit-learn.

A set is one Arrow file, compressed with zstd, and its entry in `manifest.json`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from functools import cache as once
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.cache import published
from trainables.data.dataset import DATASETS, Dataset, DataSource, Summary
from trainables.data.files.about import Count
from trainables.data.images import Images, mapped
from trainables.errors import ConfigError

LOG = logging.getLogger(__name__)
HERE = Path(__file__).parent
DIGITS = tuple("0123456789")
MOST = 16  # the largest value of a pixel of a digit


class Packaged(DataSource):
    """A data set that comes with a package: one file or a few, mapped and not read."""

    REVISION: ClassVar[int] = 1

    @classmethod
    def count(cls) -> Count:
        """Return how many classes and images there are."""
        raise NotImplementedError

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int:
        return cls.count().classes

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.load(config, cache)

    @classmethod
    def summary(cls, config: DataConfig) -> Summary | None:
        return Summary(None, {"all": cls.count()})


class Embedded(Packaged):
    """Square drawings: the evaluation crop is the whole image."""

    NAME: ClassVar[str]
    FOLDER: ClassVar[Path] = HERE

    @classmethod
    def entry(cls) -> dict[str, Any]:
        """Return file_sha256, content_sha256, images and classes of the set's file."""
        entries: dict[str, dict[str, Any]] = json.loads((cls.FOLDER / "manifest.json").read_text())
        return entries[cls.NAME]

    @classmethod
    def count(cls) -> Count:
        return Count(cls.entry()["classes"], cls.entry()["images"])

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        pinned = f"{cls.NAME} {cls.REVISION} {cls.entry()['content_sha256']}"
        return hashlib.sha256(pinned.encode()).hexdigest()

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        name = f"{cls.NAME}-{cls.entry()['content_sha256'][:16]}"
        folder = published(Path(cache) / "embedded" / name, cls.decode)
        labels, classes = _read_classes(folder)
        return Dataset(Images.same_size(mapped(folder / "images.npy")), labels, classes)

    @classmethod
    def decode(cls, folder: Path) -> None:
        """Unpack the Arrow file into `folder`."""
        batch = cls.batch(folder)
        height, width, channels = (
            int(batch.schema.metadata[key]) for key in (b"height", b"width", b"channels")
        )
        shape = (len(batch), height, width, *([channels] if channels > 1 else []))
        raw = batch.column("image").buffers()[1]
        pixels = np.frombuffer(raw, np.uint8, int(np.prod(shape))).reshape(shape)
        np.save(folder / "images.npy", pixels, allow_pickle=False)
        column = batch.column("class")
        _write_classes(folder, column.indices.to_numpy(), column.dictionary.to_pylist())

    @classmethod
    def batch(cls, folder: Path) -> Any:
        """Return the Arrow file's one record batch, to be decoded into `folder`.

        Raises:
            ConfigError: the file is damaged.
        """
        import pyarrow as pa  # only whoever decodes pays for it

        path, wanted = cls.FOLDER / f"{cls.NAME}.arrow", cls.entry()["file_sha256"]
        LOG.info("decoding %s into %s", path.name, folder.parent)
        raw = path.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        if digest != wanted:
            raise ConfigError(
                str(path),
                f"SHA-256 {digest[:12]}…",
                f"{wanted[:12]}…",
                "The file is damaged; reinstall the package",
            )
        return pa.ipc.open_file(pa.py_buffer(raw)).get_batch(0)


def _write_classes(folder: Path, labels: np.ndarray, classes: list[str]) -> None:
    np.save(folder / "labels.npy", labels.astype(np.int64), allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(classes))


def _read_classes(folder: Path) -> tuple[torch.Tensor, tuple[str, ...]]:
    labels = torch.from_numpy(np.load(folder / "labels.npy", allow_pickle=False))
    return labels, tuple(json.loads((folder / "classes.json").read_text()))


@DATASETS.register("typefaces")
class Typefaces(Embedded):
    """200 typefaces, 6,163 glyphs, 64 × 64 grey: few classes of about 31, like CUB."""

    NAME: ClassVar[str] = "typefaces"


@DATASETS.register("emoji")
class Emoji(Embedded):
    """1,526 emoji, 7,370 drawings, 64 × 64 RGB: many classes of 4 to 6, like SOP."""

    NAME: ClassVar[str] = "emoji"


@DATASETS.register("characters")
class Characters(Embedded):
    """The glyphs of `typefaces` by what they show: 62 classes (A to Z, a to z, 0 to 9) of 86 to 117
    across all typefaces, for classification."""

    NAME: ClassVar[str] = "typefaces"

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Hash the file's digest: the content that the manifest pins is of typefaces."""
        pinned = f"characters {cls.REVISION} {cls.entry()['file_sha256']}"
        return hashlib.sha256(pinned.encode()).hexdigest()

    @classmethod
    def entry(cls) -> dict[str, Any]:
        return {**super().entry(), "classes": 62}

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        name = f"characters-{cls.entry()['file_sha256'][:16]}"
        folder = published(Path(cache) / "embedded" / name, cls.decode_characters)
        labels, classes = _read_classes(folder)
        return replace(super().load(config, cache), labels=labels, classes=classes)

    @classmethod
    def decode_characters(cls, folder: Path) -> None:
        """Write what character each image shows, classes in the order of their code points."""
        column = cls.batch(folder).column("character")
        classes, order = np.unique(column.dictionary.to_pylist(), return_inverse=True)
        _write_classes(folder, order[column.indices.to_numpy()], classes.tolist())


@DATASETS.register("digits")
class Digits(Packaged):
    """10 digits, 1,797 drawings by hand, 8 × 8 grey (Alpaydin and Kaynak, "Optical recognition of
    handwritten digits", UCI 1998): small enough for tests of classification."""

    @classmethod
    def count(cls) -> Count:
        return Count(len(DIGITS), len(_read_digits()[1]))

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        pixels, labels = _read_digits()
        digest = hashlib.sha256(f"digits {cls.REVISION}".encode())
        digest.update(pixels.tobytes())
        digest.update(labels.tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        pixels, labels = _read_digits()
        images = Images.same_size(torch.from_numpy(pixels.copy()))
        return Dataset(images, torch.from_numpy(labels.copy()), DIGITS)


@once
def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels [N, 8, 8] uint8, brought from 0 … 16 to 0 … 255, and labels [N] int64."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = (digits.images * 255 / MOST).round().astype(np.uint8)
    return pixels, digits.target.astype(np.int64)
