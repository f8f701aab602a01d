"""The cache folder: made once by whoever comes first, whole or not at all.

Sixteen trials may start at once and any of them may be killed at any instant. So everything
here is built in a temporary folder under a file lock, flushed to disk and renamed into place;
a folder that carries its final name is complete.

What takes long to build may go on where a killed process left it (`published(…, goes_on=True)`):
its folder keeps the name `<name>.begun` until it is complete.

Disks and copies lose bytes, so a folder carries digests of its blocks
(`trainables/machine/digests.py`), and whoever opens it first reads all of it; what is damaged is
made again. The processes of one run check it once between them: beside the folder, `<name>.checked`
says which runs have found it whole, and in which state of its files (size, times, inode). A change
while the run goes on alters that state; one before it is found because its name is new.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from trainables.errors import ConfigError
from trainables.machine.digests import MANIFEST, damage, seal, sealed, unsealed
from trainables.machine.files import write_atomically
from trainables.machine.processes import host_name

LOG = logging.getLogger(__name__)
WRITING = " while writing the cache"
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
UNWRITABLE = (*READ_ONLY, errno.ENOSPC, errno.EDQUOT)  # where keeping nothing may be good enough
JOURNAL = "begun.jsonl"  # in a folder that goes on: how far it is; never in a complete one
RUNS = 32  # at most that a folder's note of checks names
# A second write within a file system's tick of the first shows in no time stamp: what is younger
# is checked, but the check is not relied upon.
TICK_NS = 2 * 10**9

# Makes the files; may return digests of blocks that it made while it wrote them (`seal`).
Build = Callable[[Path], Mapping[str, list[str]] | None]
State = dict[str, list[int]]  # file → size, times of its content and of its entry, inode
_run = ""  # the run of this process; empty: none that other processes share
_checked: dict[Path, tuple[str, State]] = {}


def of_run(name: str | None) -> None:
    """Let this process share its checks with those of the run `name`; None: with no other."""
    global _run  # noqa: PLW0603
    _run = name or ""


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
    if _trusted(folder):
        return folder
    with explained(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = _locked(folder)
        except OSError as error:
            # A cache that is only read has nobody who could change or make the folder.
            if error.errno not in READ_ONLY or _fault(folder):
                raise
            return folder
        try:
            if _trusted(folder):
                return folder
            fault = _fault(folder)
            if fault is not None:
                if folder.exists():
                    LOG.warning("%s: %s; it is made again", folder, fault)
                _build(folder, build, goes_on=goes_on)
        finally:
            lock.release()
    return folder


def begun(folder: Path) -> Path:
    """Where a folder that goes on is built."""
    return folder.with_name(f"{folder.name}.begun")


def _build(folder: Path, build: Build, *, goes_on: bool) -> None:
    _clear(folder)
    if goes_on:
        fresh = begun(folder)
        fresh.mkdir(mode=0o700, exist_ok=True)
    else:
        fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        known = build(fresh)
        for file in fresh.iterdir():
            _sync(file)
        (fresh / JOURNAL).unlink(missing_ok=True)
        seal(fresh, known or {})
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
            "ABLATE_CACHE",
            f"the cache {cache}, which cannot be written ({reason})",
            "a folder with room for decoded images",
            "Free some space, or set it to another folder",
        ) from error


def _within(name: str | bytes | int | None, cache: Path) -> bool:
    """Whether a file lies in the cache, or the cache would lie below it."""
    if not isinstance(name, str):
        return False
    path, cache = Path(name).absolute(), cache.absolute()
    return path.is_relative_to(cache) or cache.is_relative_to(path)


def _locked(folder: Path) -> FileLock:
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        LOG.info("waiting for another process that makes or checks %s", folder)
        lock.acquire()
    return lock


def _clear(folder: Path) -> None:
    # The lock is ours, so whatever else carries this name was left by a process that died.
    for rest in (folder, *folder.parent.glob(f"{folder.name}.tmp-*")):
        if rest.exists():
            shutil.rmtree(rest)


def _fault(folder: Path) -> str | None:
    """`damage`, and a note where there is none."""
    begun, state = time.time_ns(), _state(folder) or {}
    fault = damage(folder)
    young = [name for name, file in state.items() if begun - file[2] <= TICK_NS]
    if fault is None and set(young) <= {MANIFEST}:  # which has done its part
        _note(folder, state)
    return fault


def _trusted(folder: Path) -> bool:
    """Whether this process, or another of its run, has found the files whole as they are now."""
    state = _state(folder)
    if state is None:
        return False
    if _checked.get(folder) == (_run, state):
        return True
    noted = _noted(folder) if _run else {}
    if noted.get("files") != state or _here() not in noted["runs"]:
        return False
    _checked[folder] = _run, state
    return True


def _note(folder: Path, state: State) -> None:
    """Tell this process, and the others of its run, that a folder is whole."""
    _checked[folder] = _run, state
    if not _run:
        return
    noted = _noted(folder)
    runs = [run for run in noted.get("runs", []) if noted["files"] == state and run != _here()]
    note = sealed({"files": state, "runs": [*runs, _here()][-RUNS:]})
    try:
        write_atomically(folder.with_name(folder.name + ".checked"), note)
    except OSError as error:  # it only saves the others' reading
        LOG.info("no note that %s is whole: %s", folder, error)


def _noted(folder: Path) -> dict[str, Any]:
    try:
        return unsealed(folder.with_name(folder.name + ".checked")) or {}
    except OSError:
        return {}


def _here() -> str:
    """The run on this machine: others may see the folder through another cache, or another disk."""
    return f"{_run}@{host_name()}"


def _state(folder: Path) -> State | None:
    """What changes with any change of the files; None without a folder."""
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
