"""Build folders of the cache once, completely or not at all.

Many trials may start at once and be killed at any time. So a folder is built under another name
with a file lock, flushed to disk and renamed; a folder with its final name is complete.

Copies and disks lose bytes, so a folder has digests of its files (`trainables/machine/digests.py`).
`<name>.checked` beside it records the state (size, times, inode) in which the files were verified.
In any other state they are read again, and damaged folders are rebuilt.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from trainables.errors import ConfigError
from trainables.machine.digests import find_damage, read_sealed_json, seal_folder, seal_json
from trainables.machine.files import write_atomically

LOG = logging.getLogger(__name__)
READ_ONLY = (errno.EACCES, errno.EROFS)
# where keeping nothing may be good enough; the last two: a file in the place of the folder
UNWRITABLE = (*READ_ONLY, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST)


class CacheError(OSError):
    """The cache cannot be written. It is an OSError, so that a trial is retried."""


def get_or_build(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, after calling `build(temporary folder)` if it is not complete.

    Raises:
        CacheError: the disk is full or the cache cannot be written.
    """
    if _is_checked(folder):
        return folder
    with explain_write_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(folder.with_name(f"{folder.name}.lock")).acquire()
        except OSError as error:
            # A cache that is only read has nobody who could change or make the folder.
            if error.errno not in READ_ONLY or find_damage(folder) is not None:
                raise
            return folder
        with lock:
            if not _is_checked(folder):  # another process may have made it meanwhile
                state, fault = _read_state(folder), find_damage(folder)
                if fault is not None:
                    if folder.exists():
                        LOG.warning("%s: %s. It is made again.", folder, fault)
                    _build_folder(folder, build)
                    state = _read_state(folder)
                write_atomically(_name_note(folder), seal_json({"files": state}))
    return folder


def _build_folder(folder: Path, build: Callable[[Path], None]) -> None:
    # The lock is ours, so whatever else carries this name was left by a process that died.
    for remainder in (folder, *folder.parent.glob(f"{folder.name}.tmp-*")):
        shutil.rmtree(remainder, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        build(fresh)
        seal_folder(fresh)
        fresh.chmod(0o755)
        for path in (*fresh.iterdir(), fresh):
            _sync_to_disk(path)
        fresh.replace(folder)
        _sync_to_disk(folder.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


@contextmanager
def explain_write_errors(cache: Path) -> Iterator[None]:
    """Turn write errors of the cache into a CacheError with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        fault = f"{os.strerror(error.errno or 0)} while writing the cache {cache}. Free some space "
        raise CacheError(error.errno, f"{fault}or set ABLATE_CACHE to another folder.") from error


@contextmanager
def require_cache(cache: Path) -> Iterator[None]:
    """Turn a CacheError into a ConfigError, where nothing can continue without the cache."""
    try:
        yield
    except CacheError as error:
        fault = f"the cache {cache} cannot be written ({os.strerror(error.errno or 0)})"
        remedy = "Free some space, or set ABLATE_CACHE to another folder with room for images"
        raise ConfigError("ABLATE_CACHE", f"{fault}. {remedy}.") from error


def _is_checked(folder: Path) -> bool:
    """Return whether the files are in the state in which they were verified."""
    try:
        return read_sealed_json(_name_note(folder)) == {"files": _read_state(folder)}
    except OSError:
        return False


def _name_note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.checked")


def _read_state(folder: Path) -> dict[str, list[int]]:
    """Return size, times and inode of the files, by name."""
    states = {file.name: file.stat() for file in folder.iterdir()} if folder.exists() else {}
    return {
        name: [file.st_size, file.st_mtime_ns, file.st_ctime_ns, file.st_ino]
        for name, file in states.items()
    }


def _sync_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
