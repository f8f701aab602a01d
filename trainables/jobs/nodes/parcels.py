"""A data set as it travels by storage: a few archives of its files, and a list of them.

    data/<name>-<16 digits of its fingerprint>/part-0000.tar …
    data/<name>-<…>/parcel.json    {"fingerprint", "parts": [{"name", "size", "sha256"}, …]}

The list goes last, so that what has one is whole. Archives hold plain files below the data set's
folder and nothing else; what else one of them held would be refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS
from trainables.data.files.fileset import FileSet
from trainables.data.files.places import root_of
from trainables.errors import ConfigError
from trainables.jobs.nodes.mirror import DRAFT_SECONDS
from trainables.jobs.nodes.store import DRAFT, Store, placed

PART = 512 * 2**20  # bytes of files after which an archive ends; a larger file has one alone
LIST = "parcel.json"


def place_of(name: str, fingerprint: str) -> str:
    """The folder in storage of one data set as it was at one time."""
    return f"data/{name}-{fingerprint[:16]}"


def root_here(config: DataConfig) -> Path:
    """The folder of a data set's files on this machine, or the table that lists them.

    Raises:
        ConfigError: it is not here, comes with a package, or does not say where its files lie.
    """
    source = DATASETS[config.name]
    if issubclass(source, FileSet):
        return source.root(config)
    if source.ABOUT is not None:
        return root_of(config, source.ABOUT)
    raise ConfigError(
        "NAME",
        f"{config.name}, which comes with its package",
        "a data set of files",
        "Install that package on every node",
    )


def files_of(root: Path, config: DataConfig) -> tuple[Path, list[str]]:
    """The folder that is sent, and the files in it: all below a data set's folder; of a table
    the table, and the images that it lists and that lie beside it."""
    if root.is_dir():
        return root, sorted(path.relative_to(root).as_posix() for path in _below(root))
    source = DATASETS[config.name]
    assert issubclass(source, FileSet)
    paths = [path for path in source.index(config).paths if (root.parent / path).is_file()]
    return root.parent, [root.name, *sorted(paths)]


def _below(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """All files, those of linked folders too, unless a link leads back to a folder above it."""
    real = folder.resolve()
    if real in above:
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _below(path, (*above, real))
        elif path.is_file():
            yield path


def push(store: Store, config: DataConfig, fingerprint: str) -> tuple[int, int]:
    """A data set to storage; how many files and bytes. (0, 0): it is there already.

    Raises:
        ConfigError: as `root_here`.
        OSError: a file cannot be read, or the storage does not take it.
    """
    folder, names = files_of(root_here(config), config)
    place = place_of(config.name, fingerprint)
    there = store.listed(place)
    if LIST in there:
        return 0, 0
    for name, found in there.items():  # what a push that was broken off has left
        if name.endswith(DRAFT) and time.time() - found.at > DRAFT_SECONDS:
            store.delete(f"{place}/{name}")
    told: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as drafts:
        draft = Path(drafts) / "part.tar"
        for number, part in enumerate(_parts(folder, names)):
            with tarfile.open(draft, "w", dereference=True) as archive:
                for name in part:
                    archive.add(folder / name, arcname=name, recursive=False)
            name = f"part-{number:04d}.tar"
            told.append({"name": name, "size": draft.stat().st_size, "sha256": _digest(draft)})
            store.put(f"{place}/{name}", draft)
        draft.write_text(json.dumps({"fingerprint": fingerprint, "parts": told}), encoding="utf-8")
        store.put(f"{place}/{LIST}", draft)
    return len(names), sum((folder / name).stat().st_size for name in names)


def pull(store: Store, name: str, fingerprint: str, to: Path) -> bool:
    """The files of a data set below `to`, which is made; False: the storage has it not.

    Raises:
        OSError: it cannot be read, or is not as it was sent.
        ConfigError: a name in it that leads elsewhere.
    """
    place = place_of(name, fingerprint)
    to.mkdir(parents=True, exist_ok=True)
    draft = to.parent / f"{to.name}.part"
    try:
        if not store.get(f"{place}/{LIST}", draft):
            return False
        for part in _listed(draft.read_bytes(), f"{place}/{LIST}"):
            whole = store.get(f"{place}/{part['name']}", draft)
            if not whole or _digest(draft) != part["sha256"]:
                raise OSError(f"{place}/{part['name']} in storage is not as it was sent")
            _unpack(draft, to)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _listed(content: bytes, where: str) -> list[dict[str, str]]:
    try:
        parts = json.loads(content)["parts"]
        return [{key: str(part[key]) for key in ("name", "sha256")} for part in parts]
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"{where} in storage is none of ours ({error!r})") from error


def _unpack(archive: Path, to: Path) -> None:
    with tarfile.open(archive, "r:") as members:
        for member in members:
            content = members.extractfile(member) if member.isreg() else None
            if content is None:
                raise OSError(f"{member.name!r} in a data set from storage is no plain file")
            path = placed(to, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file, io.DEFAULT_BUFFER_SIZE * 16)


def _parts(folder: Path, names: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name in names:
        part.append(name)
        size += (folder / name).stat().st_size
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
