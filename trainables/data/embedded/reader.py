"""The embedded data sets: decoded once into the cache, memory-mapped from there; and the digits
that come with scikit-learn."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from functools import cache as once
from pathlib import Path
from typing import Any, ClassVar, TypedDict

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


class Entry(TypedDict):
    """What the manifest pins of one file."""

    file_sha256: str
    content_sha256: str
    images: int
    classes: int


def content_sha256(flat: np.ndarray, labels: np.ndarray, classes: list[str]) -> str:
    """SHA-256 (hex) of pixels [N, bytes], labels and class names, whatever the compression."""
    digest = hashlib.sha256(json.dumps([flat.shape, classes]).encode())
    digest.update(np.ascontiguousarray(labels, dtype=np.int64).tobytes())
    digest.update(np.ascontiguousarray(flat).data)
    return digest.hexdigest()


class Embedded(DataSource):
    """Square drawings: the evaluation crop is the whole image."""

    REVISION: ClassVar[int] = 1
    NAME: ClassVar[str]
    FOLDER: ClassVar[Path] = HERE

    @classmethod
    def entry(cls) -> Entry:
        entries: dict[str, Entry] = json.loads((cls.FOLDER / "manifest.json").read_text())
        return entries[cls.NAME]

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        pinned = f"{cls.NAME} {cls.REVISION} {cls.entry()['content_sha256']}"
        return hashlib.sha256(pinned.encode()).hexdigest()

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int:
        return cls.entry()["classes"]

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.load(config, cache)  # a file or a few, mapped and not read

    @classmethod
    def summary(cls, config: DataConfig) -> Summary | None:
        entry = cls.entry()
        return Summary(None, {"all": Count(entry["classes"], entry["images"])})

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        pinned = cls.entry()["content_sha256"]
        folder = published(Path(cache) / "embedded" / f"{cls.NAME}-{pinned[:16]}", cls.decode)
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        return Dataset(
            images=Images.same_size(mapped(folder / "images.npy")),
            labels=torch.from_numpy(np.load(folder / "labels.npy", allow_pickle=False)),
            classes=classes,
        )

    @classmethod
    def decode(cls, folder: Path) -> None:
        """Unpack the Arrow file into `folder`.

        Raises:
            ConfigError: the file is damaged or not the one that the manifest names.
        """
        entry, batch = cls.entry(), cls.batch(folder)
        shape = {key.decode(): value.decode() for key, value in batch.schema.metadata.items()}
        height, width, channels = (int(shape[key]) for key in ("height", "width", "channels"))
        column = batch.column("class")
        labels = column.indices.to_numpy().astype(np.int64)
        classes: list[str] = column.dictionary.to_pylist()
        size = height * width * channels
        flat = np.frombuffer(
            batch.column("image").buffers()[1], np.uint8, len(labels) * size
        ).reshape(-1, size)
        if content_sha256(flat, labels, classes) != entry["content_sha256"]:
            raise ConfigError(
                str(cls.FOLDER / f"{cls.NAME}.arrow"),
                "other pixels than the manifest names",
                "those of this version",
                "The decoder does not fit the file; reinstall pyarrow and the package",
            )
        pixels = flat.reshape(-1, height, width, *([channels] if channels > 1 else []))
        np.save(folder / "images.npy", pixels, allow_pickle=False)
        np.save(folder / "labels.npy", labels, allow_pickle=False)
        (folder / "classes.json").write_text(json.dumps(classes))

    @classmethod
    def batch(cls, folder: Path) -> Any:
        """The Arrow file's one record batch, to be decoded into `folder`.

        Raises:
            ConfigError: the file is damaged.
        """
        import pyarrow as pa  # only whoever decodes pays for it

        path, entry = cls.FOLDER / f"{cls.NAME}.arrow", cls.entry()
        LOG.info("decoding %s into %s", path.name, folder.parent)
        raw = path.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        if digest != entry["file_sha256"]:
            raise ConfigError(
                str(path),
                f"SHA-256 {digest[:12]}…",
                f"{entry['file_sha256'][:12]}…",
                "The file is damaged; reinstall the package",
            )
        return pa.ipc.open_file(pa.py_buffer(raw)).get_batch(0)


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
        """Of the file: the content that the manifest pins is of typefaces."""
        pinned = f"characters {cls.REVISION} {cls.entry()['file_sha256']}"
        return hashlib.sha256(pinned.encode()).hexdigest()

    @classmethod
    def entry(cls) -> Entry:
        return {**super().entry(), "classes": 62}

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        name = f"characters-{cls.entry()['file_sha256'][:16]}"
        folder = published(Path(cache) / "embedded" / name, cls.decode_characters)
        labels = np.load(folder / "labels.npy", allow_pickle=False)
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        drawn = super().load(config, cache)
        return replace(drawn, labels=torch.from_numpy(labels), classes=classes)

    @classmethod
    def decode_characters(cls, folder: Path) -> None:
        """What character each image shows, classes in the order of their code points."""
        column = cls.batch(folder).column("character")
        classes, order = np.unique(column.dictionary.to_pylist(), return_inverse=True)
        labels = order[column.indices.to_numpy()].astype(np.int64)
        np.save(folder / "labels.npy", labels, allow_pickle=False)
        (folder / "classes.json").write_text(json.dumps(classes.tolist()))


@DATASETS.register("digits")
class Digits(DataSource):
    """10 digits, 1,797 drawings by hand, 8 × 8 grey (Alpaydin and Kaynak, "Optical recognition of
    handwritten digits", UCI 1998): small enough for tests of classification."""

    REVISION: ClassVar[int] = 1

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        pixels, labels = _read_digits()
        digest = hashlib.sha256(f"digits {cls.REVISION}".encode())
        digest.update(pixels.tobytes())
        digest.update(labels.tobytes())
        return digest.hexdigest()

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int:
        return len(DIGITS)

    @classmethod
    def without_pixels(cls, config: DataConfig, cache: Path) -> Dataset | None:
        return cls.load(config, cache)  # a file or a few, mapped and not read

    @classmethod
    def summary(cls, config: DataConfig) -> Summary | None:
        return Summary(None, {"all": Count(len(DIGITS), len(_read_digits()[1]))})

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        pixels, labels = _read_digits()
        images = Images.same_size(torch.from_numpy(pixels.copy()))
        return Dataset(images, torch.from_numpy(labels.copy()), DIGITS)


@once
def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels [N, 8, 8] uint8, brought from 0 … 16 to 0 … 255, and labels [N] int64."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = (found.images * 255 / MOST).round().astype(np.uint8)
    return pixels, found.target.astype(np.int64)
