"""The cache folder: made once by whoever comes first, whole or not at all.

Sixteen trials may start at once and any of them may be killed at any instant. So everything
here is built in a temporary folder under a file lock, flushed to disk and renamed into place;
a folder that carries its final name is complete.

What takes long to build may go on where a killed process left it (`published(…, goes_on=True)`):
its folder keeps the name `<name>.begun` until it is complete.

Disks and copies lose bytes, so a folder carries digests of its blocks
(`trainables/machine/digests.py`), and whoever opens it first reads all of it; what is damaged is
made again. For an hour all processes rely on that check while the files stay in the state (size,
times, inode) that `<name>.checked`, beside the folder, tells.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from trainables.errors import ConfigError
from trainables.machine.digests import MANIFEST, damage, seal, sealed, unsealed
from trainables.machine.files import write_atomically

LOG = logging.getLogger(__name__)
WRITING = " while writing the cache"
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
UNWRITABLE = (*READ_ONLY, errno.ENOSPC, errno.EDQUOT)  # where keeping nothing may be good enough
JOURNAL = "begun.rows"  # in a folder that goes on: how far it is; never in a complete one
RELIED_UPON = 3600.0  # seconds for which other processes take a check for done

Build = Callable[[Path], None]  # makes the files in the folder that it is given
State = dict[str, list[int]]  # file → size, times of its content and of its entry, inode
_checked: dict[Path, State] = {}  # what this process has found whole


def published(folder: Path, build: Build, *, goes_on: bool = False) -> Path:
    """Return `folder`, after calling `build(temporary folder)` if it is not there whole.

    A folder in which anything is not as it was published (a copied, truncated or altered cache,
    or one of a version without digests) is built again, with one line in the log.

    Args:
        goes_on: `build` is given the folder that an interrupted process left, with its `JOURNAL`,
            and goes on from there. An error leaves nothing, as without.

    Raises:
        OSError: the disk is full or the cache cannot be written; the message says where.
    """
    if _is_trusted(folder):
        return folder
    with explained(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(folder.name + ".lock"))
        try:
            lock.acquire(timeout=1)
        except Timeout:
            LOG.info("waiting for another process that makes or checks %s", folder)
            lock.acquire()
        except OSError as error:
            # A cache that is only read has nobody who could change or make the folder.
            if error.errno not in READ_ONLY or _check(folder):
                raise
            return folder
        try:
            if not _is_trusted(folder) and (fault := _check(folder)) is not None:
                if folder.exists():
                    LOG.warning("%s: %s; it is made again", folder, fault)
                _build(folder, build, goes_on=goes_on)
                _remember(folder, _read_state(folder))
        finally:
            lock.release()
    return folder


def begun(folder: Path) -> Path:
    """Return where a folder that goes on is built."""
    return folder.with_name(f"{folder.name}.begun")


def _build(folder: Path, build: Build, *, goes_on: bool) -> None:
    # The lock is ours, so whatever else carries this name was left by a process that died.
    for rest in (folder, *folder.parent.glob(f"{folder.name}.tmp-*")):
        if rest.exists():
            shutil.rmtree(rest)
    if goes_on:
        fresh = begun(folder)
        fresh.mkdir(mode=0o700, exist_ok=True)
    else:
        fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        build(fresh)
        for file in fresh.iterdir():
            _sync(file)
        (fresh / JOURNAL).unlink(missing_ok=True)
        seal(fresh)
        _sync(fresh / MANIFEST)
        fresh.chmod(0o755)
        _sync(fresh)
        fresh.replace(folder)
        _sync(folder.parent)
    except BaseException as error:
        # Whoever was interrupted, and not refused, may go on.
        if not goes_on or isinstance(error, Exception):
            shutil.rmtree(fresh, ignore_errors=True)
        raise


@contextmanager
def explained(where: Path) -> Iterator[None]:
    """Say what to do when the cache cannot be written; still an OSError, so it is retried."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNWRITABLE or error.errno == errno.EPERM:
            raise
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno or 0)}{WRITING} {where}; free some space "
            "or set ABLATE_CACHE to another folder",
        ) from error


@contextmanager
def required(cache: Path) -> Iterator[None]:
    """Report a cache that cannot be used as bad input, where nothing can go on without it.

    Raises:
        ConfigError: for an OSError of the cache; others pass.
    """
    try:
        yield
    except OSError as error:
        if WRITING not in str(error) and not _is_of_cache(error.filename, cache):
            raise
        reason = (error.strerror or str(error)).partition(WRITING)[0]
        raise ConfigError(
            "ABLATE_CACHE",
            f"the cache {cache}, which cannot be written ({reason})",
            "a folder with room for decoded images",
            "Free some space, or set it to another folder",
        ) from error


def _is_of_cache(name: str | bytes | int | None, cache: Path) -> bool:
    """Return whether a file lies in the cache, or the cache would lie below it."""
    if not isinstance(name, str):
        return False
    path, cache = Path(name).absolute(), cache.absolute()
    return path.is_relative_to(cache) or cache.is_relative_to(path)


def _check(folder: Path) -> str | None:
    """Return what is wrong with a folder; remember that nothing is."""
    state = _read_state(folder)
    fault = damage(folder)
    if fault is None:
        _remember(folder, state)
    return fault


def _is_trusted(folder: Path) -> bool:
    """Return whether somebody has found the files whole as they are now, not long ago."""
    state = _read_state(folder)
    if state is not None and _checked.get(folder) != state:
        note = _note(folder)
        try:
            recent = time.time() - note.stat().st_mtime < RELIED_UPON
            if recent and unsealed(note) == {"files": state}:
                _checked[folder] = state
        except OSError:
            return False
    return state is not None and _checked.get(folder) == state


def _remember(folder: Path, state: State | None) -> None:
    if state is None:
        return
    _checked[folder] = state
    try:
        write_atomically(_note(folder), sealed({"files": state}))
    except OSError as error:  # it only saves the others' reading
        LOG.info("no note that %s is whole: %s", folder, error)


def _note(folder: Path) -> Path:
    return folder.with_name(folder.name + ".checked")


def _read_state(folder: Path) -> State | None:
    """Return what changes with any change of the files; None without a folder."""
    try:
        states = {file.name: file.stat() for file in folder.iterdir()}
    except OSError:
        return None
    return {
        name: [file.st_size, file.st_mtime_ns, file.st_ctime_ns, file.st_ino]
        for name, file in states.items()
    }


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    """A `.npy` file of numbers. Of a full disk the OSError has an errno, as `np.save`'s has not."""
    whole = np.ascontiguousarray(array)
    with path.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, np.lib.format.header_data_from_array_1_0(whole))
        out.write(whole.reshape(-1).view(np.uint8).data)
