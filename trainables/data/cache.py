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
WRITING = " while writing the cache"
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
UNWRITABLE = (*READ_ONLY, errno.ENOSPC, errno.EDQUOT)  # where keeping nothing may be good enough

Build = Callable[[Path], None]  # makes the files in the folder that it is given
State = dict[str, list[int]]  # file → size, times of its content and of its entry, inode


def get_or_build(folder: Path, build: Build) -> Path:
    """Return `folder`, after calling `build(temporary folder)` if it is not there whole.

    Raises:
        OSError: the disk is full or the cache cannot be written; the message says where.
    """
    if _is_checked(folder):
        return folder
    with explain_write_errors(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f"{folder.name}.lock"))
        try:
            lock.acquire()
        except OSError as error:
            # A cache that is only read has nobody who could change or make the folder.
            if error.errno not in READ_ONLY or find_damage(folder) is not None:
                raise
            return folder
        try:
            if not _is_checked(folder):  # another process may have made it meanwhile
                state, fault = _read_state(folder), find_damage(folder)
                if fault is not None:
                    if folder.exists():
                        LOG.warning("%s: %s; it is made again", folder, fault)
                    _build_folder(folder, build)
                    state = _read_state(folder)
                write_atomically(_name_note(folder), seal_json({"files": state}))
        finally:
            lock.release()
    return folder


def _build_folder(folder: Path, build: Build) -> None:
    # The lock is ours, so whatever else carries this name was left by a process that died.
    unfinished = folder.with_name(f"{folder.name}.begun")  # of a version before 0.2.0
    for remainder in (folder, unfinished, *folder.parent.glob(f"{folder.name}.tmp-*")):
        if remainder.exists():
            shutil.rmtree(remainder)
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
def explain_write_errors(where: Path) -> Iterator[None]:
    """Say what to do when the cache cannot be written; still an OSError, so it is retried."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE or error.errno == errno.EPERM:
            raise
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno or 0)}{WRITING} {where}; free some space or set "
            "ABLATE_CACHE to another folder",
        ) from error


@contextmanager
def require_cache(cache: Path) -> Iterator[None]:
    """Report a cache that cannot be used as bad input, where nothing can go on without it.

    Raises:
        ConfigError: for an OSError of the cache; others pass.
    """
    try:
        yield
    except OSError as error:
        if WRITING not in str(error):
            if not isinstance(error.filename, str):
                raise
            file, top = Path(error.filename).absolute(), cache.absolute()
            # A file in the cache, or one in whose place the cache should lie.
            if not (file.is_relative_to(top) or top.is_relative_to(file)):
                raise
        reason = (error.strerror or str(error)).partition(WRITING)[0]
        raise ConfigError(
            "ABLATE_CACHE",
            f"the cache {cache} cannot be written ({reason}): free some space, or set ABLATE_CACHE "
            "to another folder with room for decoded images.",
        ) from error


def _is_checked(folder: Path) -> bool:
    """Return whether the files are in the state in which somebody has found them whole."""
    try:
        return read_sealed_json(_name_note(folder)) == {"files": _read_state(folder)}
    except OSError:
        return False


def _name_note(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.checked")


def _read_state(folder: Path) -> State:
    """Return what changes with any change of the files."""
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
