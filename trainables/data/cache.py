"""The cache folder: made once by whoever comes first, whole or not at all.

Sixteen trials may start at once, and any of them may be killed at any instant. So a folder is built
under another name and a file lock, flushed to disk and renamed into place: one that carries its
final name is complete.

Copies and disks lose bytes, so a folder carries digests of its files
(`trainables/machine/digests.py`). `<name>.checked`, beside it, has the state (size, times, inode)
in which the files were found whole. In any other state all of them are read, and what is damaged
is made again.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from trainables.errors import ConfigError
from trainables.machine.digests import find_damage, read_sealed_json, seal_folder, seal_json
from trainables.machine.files import write_atomically

LOG = logging.getLogger(__name__)
READ_ONLY = (errno.EACCES, errno.EROFS)
# where keeping nothing may be good enough; the last two: a file in the place of the folder
UNWRITABLE = (*READ_ONLY, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST)


class CacheError(OSError):
    """A cache that cannot be written: an OSError, so that a trial is tried again."""


def get_or_build(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, after calling `build(temporary folder)` if it is not there whole.

    Raises:
        CacheError: the disk is full or the cache cannot be written; the message says where.
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
                        LOG.warning("%s: %s; it is made again", folder, fault)
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
    """Raise a CacheError that says what to do when the cache cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        text = f"{os.strerror(error.errno or 0)} while writing the cache {cache}; free some space "
        raise CacheError(error.errno, f"{text}or set ABLATE_CACHE to another folder") from error


@contextmanager
def require_cache(cache: Path) -> Iterator[None]:
    """Report a cache that cannot be written as bad input, where nothing can go on without it.

    Raises:
        ConfigError: for a CacheError; other errors pass.
    """
    try:
        yield
    except CacheError as error:
        text = f"the cache {cache} cannot be written ({os.strerror(error.errno or 0)}): free some "
        text += "space, or set ABLATE_CACHE to another folder with room for decoded images."
        raise ConfigError("ABLATE_CACHE", text) from error


def _is_checked(folder: Path) -> bool:
    """Return whether the files are in the state in which somebody has found them whole."""
    try:
        return read_sealed_json(_name_note(folder)) == {"files": _read_state(folder)}
    except OSError:
        return False


def _name_note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.checked")


def _read_state(folder: Path) -> dict[str, list[int]]:
    """Return what changes with any change of the files: sizes, times and inodes, by name."""
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


def write_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    """Write an `.npy` file; the OSError of a full disk has an errno, as `np.save`'s has not."""
    content = BytesIO()
    np.save(content, array, allow_pickle=False)
    path.write_bytes(content.getvalue())
