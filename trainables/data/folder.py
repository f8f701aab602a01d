"""Any folder of class folders: `data.root`/<class>/**/<image>.

Images are files by these endings; what else lies there is passed over: other files, pipes, devices
and sockets whatever their names, and files and folders that archives and desktops leave behind
(`__MACOSX`, names that begin with a dot). Links to files are followed, links to folders only where
they are classes.

Every file is decoded once, its short side resized to round(image_size·256/224), or as
`data.eval_resize` or `data.stored_side` say, and kept as uint8 in one memory-mapped run of bytes
with a table of sizes; evaluation then takes the centre `image_size` square as it lies, as the
papers' Resize(256) + CenterCrop(224) does, unless images are kept larger than it wants them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from PIL import Image

from trainables.data.cache import explained, published
from trainables.data.dataset import DATASETS, Dataset
from trainables.data.decode import decoded
from trainables.data.images import Images, mapped_bytes
from trainables.data.official import refuse_official
from trainables.errors import ConfigError
from trainables.machine.digests import sealed, unsealed
from trainables.machine.texts import user_path

if TYPE_CHECKING:
    from trainables.config.sections import DataConfig

LOG = logging.getLogger(__name__)
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
AHEAD = 256  # images in flight: bounds memory while the threads stay busy


@DATASETS.register("folder")
class Folder:
    """Class folders of JPEG, PNG, WebP, BMP, TIFF or GIF images; other files are passed over."""

    REVISION: ClassVar[int] = 1

    @classmethod
    def fingerprint(cls, config: DataConfig, cache: Path) -> str:
        """SHA-256 over class names, file names and file contents.

        Contents are read once; later calls trust a file whose size and time are unchanged.
        """
        root = _root(config)
        files = listing(root)
        hashes = _hashes(root, files, Path(cache) / "folder")
        digest = hashlib.sha256(f"folder {cls.REVISION}".encode())
        for file in files:
            digest.update(f"\x1e{file.as_posix()}\x1f{hashes[file.as_posix()]}".encode())
        return digest.hexdigest()

    @classmethod
    def class_count(cls, config: DataConfig, cache: Path) -> int:  # noqa: ARG003
        return len({file.parts[0] for file in listing(_root(config))})

    @classmethod
    def load(cls, config: DataConfig, cache: Path) -> Dataset:
        root = _root(config)
        short = config.kept
        digest = cls.fingerprint(config, cache)
        folder = published(
            Path(cache) / "folder" / f"{digest[:16]}-{short}",
            lambda fresh: _decode(root, short, fresh),
        )
        table = torch.from_numpy(np.load(folder / "table.npy", allow_pickle=False))
        images = Images(
            flat=mapped_bytes(folder / "pixels.bin"),
            offsets=table[:, 0].contiguous(),
            heights=table[:, 1].contiguous(),
            widths=table[:, 2].contiguous(),
            channels=3,
            frame=config.image_size / config.evaluated,
        )
        classes = tuple(json.loads((folder / "classes.json").read_text()))
        return Dataset(images, table[:, 3].contiguous(), classes)


def listing(root: Path) -> list[Path]:
    """All image files relative to `root`, sorted; the first part of each is its class.

    Raises:
        ConfigError: no such folder, not readable, fewer than two class folders, an empty one, a
            data set as it is unpacked whose folders are not its classes.
    """
    try:
        refuse_official(root)
        classes = sorted(
            entry for entry in root.iterdir() if entry.is_dir() and not _left_behind(entry.name)
        )
        if len(classes) < 2:
            raise ConfigError(
                "data.root",
                f"{len(classes)} class folders in {root}",
                "at least 2",
                "Give the folder that holds one folder of images per class",
            )
        files: list[Path] = []
        for folder in classes:
            inside = [Path(file).relative_to(root) for file in _images(folder)]
            if not inside:
                raise ConfigError(
                    str(folder),
                    "no images",
                    f"files ending in {' '.join(SUFFIXES)}",
                    "Remove the folder, or put its images there",
                )
            files += inside
    except OSError as error:
        raise ConfigError(
            "data.root",
            f"{error.filename or root}: {error.strerror}",
            "a readable folder of class folders",
            "Check the path and its permissions",
        ) from error
    _nameable(files)
    # By parts, so that a class's files stand together whatever characters names hold.
    return sorted(files, key=lambda file: file.parts)


def _nameable(files: list[Path]) -> None:
    """File names of other encodings have no text that could be hashed or logged."""
    for file in files:
        try:
            file.as_posix().encode()
        except UnicodeEncodeError:
            raise ConfigError(
                "data.root",
                f"the file name {os.fsencode(file)!r}",
                "names in UTF-8",
                "Rename that file (convmv renames many)",
            ) from None


def _root(config: DataConfig) -> Path:
    if config.root is None:
        raise ConfigError(
            "data.root", "nothing", "a folder of class folders", "Give --data-root DIR"
        )
    return Path(os.path.realpath(user_path(config.root, "data.root")))


def _images(folder: Path) -> Iterator[str]:
    """Image files at any depth.

    By what the folder says of its entries, so that nothing but links is asked for its kind: a data
    set has a hundred thousand files, on a network's storage perhaps.
    """
    left = [os.fspath(folder)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if _left_behind(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
                elif entry.name.lower().endswith(SUFFIXES) and _to_be_read(entry):
                    yield entry.path


def _to_be_read(entry: os.DirEntry[str]) -> bool:
    """A file, or a link that leads nowhere: its data is missing, which is told when it is read.
    Reading from a pipe would wait for ever."""
    return entry.is_file() or (entry.is_symlink() and not Path(entry.path).exists())


def _left_behind(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _hashes(root: Path, files: list[Path], cache: Path) -> dict[str, str]:
    """SHA-256 of each file; known ones (same size and time) are not read again."""
    index = cache / f"hashes-{hashlib.sha256(str(root).encode()).hexdigest()[:16]}.json"
    try:
        known: dict[str, list[str]] = unsealed(index) or {}
    except OSError:
        known = {}

    def one(file: Path) -> tuple[str, list[str]]:
        path, name = root / file, file.as_posix()
        try:
            stat = path.stat()
            stamp = f"{stat.st_size} {stat.st_mtime_ns}"
            if name in known and known[name][0] == stamp:
                return name, known[name]
            with path.open("rb") as opened:
                return name, [stamp, hashlib.file_digest(opened, "sha256").hexdigest()]
        except OSError as error:
            raise ConfigError(
                str(path), f"{error.strerror}", "a readable image", "Check its permissions"
            ) from error

    with ThreadPoolExecutor(_workers()) as pool:
        digests = dict(pool.map(one, files))
    if digests != known:
        with explained(cache):
            cache.mkdir(parents=True, exist_ok=True)
            handle, fresh = tempfile.mkstemp(prefix=index.name, suffix=".tmp", dir=cache)
            with os.fdopen(handle, "wb") as out:
                out.write(sealed(digests))
            Path(fresh).replace(index)
    return {name: digest for name, (_, digest) in digests.items()}


def _decode(root: Path, short: int, folder: Path) -> None:
    files = listing(root)
    classes = sorted({file.parts[0] for file in files})
    number = {name: place for place, name in enumerate(classes)}
    LOG.info("decoding %d images of %s", len(files), root)
    table = np.zeros((len(files), 4), np.int64)
    offset = 0
    # The limits and their message are `decode`'s; Pillow's warning would be one more line.
    with (folder / "pixels.bin").open("wb") as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        for row, pixels in enumerate(_ahead(root, files, short)):
            height, width = pixels.shape[:2]
            table[row] = offset, height, width, number[files[row].parts[0]]
            # Written, not mapped: a full disk is then an error here, not a SIGBUS later.
            out.write(np.ascontiguousarray(pixels).data)
            offset += pixels.size
            if (row + 1) % 5000 == 0:
                LOG.info("decoded %d of %d images", row + 1, len(files))
    np.save(folder / "table.npy", table, allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(classes))


def _ahead(root: Path, files: list[Path], short: int) -> Iterator[np.ndarray]:
    """Decoded images in order, a bounded number of them ahead of the reader."""
    with ThreadPoolExecutor(_workers()) as pool:
        rest = iter(files)
        waiting = deque(pool.submit(decoded, root / file, short) for file in islice(rest, AHEAD))
        try:
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(decoded, root / file, short) for file in islice(rest, 1))
        finally:
            for future in waiting:
                future.cancel()


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4
