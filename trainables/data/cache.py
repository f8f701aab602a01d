"""Locate the cache, and build its folders once, completely or not at all.

Many trials may start at once and be killed at any time. So a folder is built under another name
with a file lock, flushed to disk and renamed; a folder with its final name is complete.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from trainables.words.errors import ConfigError
from trainables.words.files import sync_to_disk
from trainables.words.texts import expand_user_path

# errors of a full or read-only disk, after which a caller may do without the cache
UNWRITABLE = (
    *(errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOTDIR, errno.EEXIST),  # a file has the name of the folder
)


class CacheError(OSError):
    """The cache cannot be written. It is an OSError, so that a trial is retried."""


def locate_default_cache() -> Path:
    """Return $ABLATE_CACHE, or $XDG_CACHE_HOME/ablate, or ~/.cache/ablate."""
    if configured := os.environ.get("ABLATE_CACHE"):
        return expand_user_path(configured, "ABLATE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_user_path(home, "XDG_CACHE_HOME") / "ablate"


def get_or_build(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; if it is not there, `build` fills it first.

    A lock lets one process build while others wait. Raise CacheError if a write fails.
    """
    if not folder.is_dir():
        with explain_write_errors(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_name(f"{folder.name}.lock")):
                if not folder.is_dir():  # another process may have built the folder meanwhile
                    _build_folder(folder, build)
    return folder


def _build_folder(folder: Path, build: Callable[[Path], None]) -> None:
    """Let `build` fill a temporary folder, flush it to disk, and rename it to `folder`."""
    # This process has the lock, so any temporary folder was left by a process that died.
    for remainder in folder.parent.glob(f"{folder.name}.tmp-*"):
        shutil.rmtree(remainder, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        build(fresh)
        fresh.chmod(0o755)  # mkdtemp gives access to the owner alone
        for path in (*fresh.iterdir(), fresh):
            sync_to_disk(path)
        fresh.replace(folder)
        sync_to_disk(folder.parent)
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
        raise CacheError(
            error.errno,
            f"the cache {cache} cannot be written ({os.strerror(error.errno or 0)}). Free some "
            "space there, or set ABLATE_CACHE to another folder with room for images.",
        ) from error


@contextmanager
def require_cache() -> Iterator[None]:
    """Turn a CacheError into a ConfigError, which ends the run without retries."""
    try:
        yield
    except CacheError as error:
        raise ConfigError("ABLATE_CACHE", str(error.strerror)) from error
