"""Read the embedded data sets, decoded once into the cache, and scikit-learn's digits.

A set is one Arrow file, compressed with zstd, and its entry in `manifest.json`.
"""

import hashlib
import json
import logging
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from trainables.config.images import DataConfig
from trainables.data.cache import get_or_build
from trainables.data.dataset import DATASETS, Dataset, DataSource
from trainables.data.images import Images, map_array
from trainables.words.errors import ConfigError

LOG = logging.getLogger(__name__)
HERE = Path(__file__).parents[1] / "embedded"  # Arrow files and their licences
LARGEST_DIGIT_PIXEL = 16


class EmbeddedSet(DataSource):
    """Square drawings, whose evaluation crop is the whole image.

    FILE: name of the Arrow file. COLUMN: its column of classes. FOLDER: where it is.
    """

    REVISION = 1
    MAPS_FILES = True
    FILE: ClassVar[str]
    COLUMN: ClassVar[str] = "class"
    FOLDER: ClassVar[Path] = HERE

    @classmethod
    def get_digest(cls, kind: str = "content") -> str:
        """Return the SHA-256 of the set's "content" or "file" (`kind`) from manifest.json."""
        entries = json.loads((cls.FOLDER / "manifest.json").read_text())
        return str(entries[cls.FILE][f"{kind}_sha256"])

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        pinned = f"{cls.FILE} {cls.REVISION} {cls.get_digest()}"
        return hashlib.sha256(pinned.encode()).hexdigest()

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        """Return the data set, mapped from the cache, where the first call unpacks its file."""
        name = f"{cls.__name__.lower()}-{cls.get_digest()[:16]}"
        folder = get_or_build(Path(cache) / "embedded" / name, cls.decode)
        labels = torch.from_numpy(np.load(folder / "labels.npy", allow_pickle=False))
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        return Dataset(Images.from_equal_sizes(map_array(folder / "images.npy")), labels, classes)

    @classmethod
    def decode(cls, folder: Path) -> None:
        """Unpack the Arrow file into `folder`: pixels, labels and the sorted names of classes."""
        import pyarrow as pa

        path = cls.FOLDER / f"{cls.FILE}.arrow"
        LOG.info("decoding %s into %s", path.name, folder.parent)
        raw = path.read_bytes()
        if hashlib.sha256(raw).hexdigest() != cls.get_digest("file"):
            raise ConfigError(str(path), "the file is damaged", "Reinstall ablate")
        batch = pa.ipc.open_file(pa.py_buffer(raw)).get_batch(0)
        sizes = batch.schema.metadata
        height, width, channels = (int(sizes[key]) for key in (b"height", b"width", b"channels"))
        shape = (len(batch), height, width, *([channels] if channels > 1 else []))
        pixels = np.frombuffer(batch.column("image").buffers()[1], np.uint8, int(np.prod(shape)))
        column = batch.column(cls.COLUMN)
        # the column has codes of a dictionary of names; labels number the names in sorted order
        classes, label_of_code = np.unique(column.dictionary.to_pylist(), return_inverse=True)
        np.save(folder / "images.npy", pixels.reshape(shape))
        np.save(folder / "labels.npy", label_of_code[column.indices.to_numpy()].astype(np.int64))
        (folder / "classes.json").write_text(json.dumps(classes.tolist()))


@DATASETS.register("typefaces")
class Typefaces(EmbeddedSet):
    """200 typefaces, 6,163 glyphs, 64 × 64 grey: few classes of about 31, like CUB."""

    FILE = "typefaces"


@DATASETS.register("emoji")
class Emoji(EmbeddedSet):
    """1,526 emoji, 7,370 drawings, 64 × 64 RGB: many classes of 4 to 6, like SOP."""

    FILE = "emoji"


@DATASETS.register("characters")
class Characters(EmbeddedSet):
    """The glyphs of `typefaces` by what they show: 62 classes (A to Z, a to z, 0 to 9) of 86 to 117
    across all typefaces, for classification."""

    FILE = "typefaces"
    COLUMN = "character"

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Hash the SHA-256 of the file, because that of "content" covers `typefaces`."""
        pinned = f"characters {cls.REVISION} {cls.get_digest('file')}"
        return hashlib.sha256(pinned.encode()).hexdigest()


@DATASETS.register("digits")
class Digits(DataSource):
    """10 digits, 1,797 drawings by hand, 8 × 8 grey (Alpaydin and Kaynak, "Optical recognition of
    handwritten digits", UCI 1998): small enough for tests of classification."""

    REVISION = 1
    MAPS_FILES = True

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """Return SHA-256 over the revision, the pixels and the labels."""
        digest = hashlib.sha256(f"digits {cls.REVISION}".encode())
        for array in _read_digits():
            digest.update(array.tobytes())
        return digest.hexdigest()

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        pixels, labels = (torch.from_numpy(array.copy()) for array in _read_digits())
        return Dataset(Images.from_equal_sizes(pixels), labels, tuple("0123456789"))


@lru_cache
def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits: pixels [N, 8, 8] uint8 in 0 … 255, and labels [N] int64."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = (digits.images * 255 / LARGEST_DIGIT_PIXEL).round().astype(np.uint8)
    return pixels, digits.target.astype(np.int64)
