"""The cache folder: made once by whoever comes first, whole or not at all.

Sixteen trials may start at once and any of them may be killed at any instant. So everything
here is built in a temporary folder under a file lock, flushed to disk and renamed into place;
a folder that carries its final name is complete.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from trainables.errors import ConfigError

LOG = logging.getLogger(__name__)
SIZES = "sizes.json"
WRITING = " while writing the cache"


def default_cache() -> Path:
    """$ABLATE_CACHE, or $XDG_CACHE_HOME/ablate, or ~/.cache/ablate."""
    named = os.environ.get("ABLATE_CACHE")
    if named:
        return Path(named).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache") / "ablate"


def published(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, after calling `build(temporary folder)` if it is not there complete.

    A folder whose files do not have the sizes they were published with (a copied or truncated
    cache) is built again.

    Raises:
        OSError: the disk is full or the cache cannot be written; the message says where.
    """
    if _intact(folder):
        return folder
    with explained(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if _intact(folder):
                return folder
            _clear(folder)
            fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
            try:
                build(fresh)
                _seal(fresh)
                fresh.replace(folder)
                _sync(folder.parent)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
    return folder


@contextmanager
def explained(where: Path) -> Iterator[None]:
    """Say what to do when the cache cannot be written; still an OSError, so it is retried."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno or 0)}{WRITING} {where}; free some space "
            "or set ABLATE_CACHE to another folder",
        ) from error


@contextmanager
def required(cache: Path) -> Iterator[None]:
    """A cache that cannot be used is bad input where nothing can go on without it.

    Raises:
        ConfigError: for an OSError of the cache; others pass.
    """
    try:
        yield
    except OSError as error:
        if WRITING not in str(error) and not _within(error.filename, cache):
            raise
        reason = (error.strerror or str(error)).partition(WRITING)[0]
        raise ConfigError(
            "ABLATE_CACHE", f"the cache {cache}, which cannot be written ({reason})",
            "a folder with room for decoded images", "Free some space, or set it to another folder",
        ) from error  # fmt: skip


def _within(name: str | bytes | int | None, cache: Path) -> bool:
    """Whether a file lies in the cache, or the cache would lie below it."""
    if not isinstance(name, str):
        return False
    path, cache = Path(name).absolute(), cache.absolute()
    return path.is_relative_to(cache) or cache.is_relative_to(path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        LOG.info("waiting for another process that makes %s", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _clear(folder: Path) -> None:
    # The lock is ours, so whatever else carries this name was left by a process that died.
    for rest in (folder, *folder.parent.glob(f"{folder.name}.tmp-*")):
        if rest.exists():
            shutil.rmtree(rest)


def _intact(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / SIZES).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _seal(folder: Path) -> None:
    files = sorted(file for file in folder.iterdir() if file.is_file())
    (folder / SIZES).write_text(json.dumps({file.name: file.stat().st_size for file in files}))
    for file in (*files, folder / SIZES):
        _sync(file)
    folder.chmod(0o755)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
