"""Files that are whole or absent, whatever is killed when, names that stay in their folder, and
files of strangers, which may be none."""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from trainables.errors import ConfigError


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, flush to disk, rename over it, flush the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Indented, keys sorted; NaN and infinities, which JSON does not know, are errors."""
    text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def inside(folder: Path, name: object) -> Path:
    """`folder / name`, of a name that somebody else wrote down: it cannot lead anywhere else.

    Raises:
        ConfigError: `name` is no plain file name (`../x`, `/x`, `a/b`, ``, `..`).
    """
    if isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name:
        path = folder / name
        if path.parent == folder and path.name == name:
            return path
    raise ConfigError(
        str(folder),
        f"{name!r} as the name of a file in it",
        "a name without a path",
        "Its records were edited: copy the folder anew, or train the trial again (--force)",
    )


def open_regular(
    path: str | Path, *, most_bytes: int | None = None, follow_links: bool = True
) -> BufferedReader:
    """Open a file that a stranger may have made, for reading, and only if it is a regular one.

    Opening a FIFO in the usual way waits for a writer for ever, and a device never ends.

    Args:
        most_bytes: a larger file is refused. A file that grows afterwards can still give more:
            read no more than this many bytes of it, as `read_regular` does.
        follow_links: whether the last part of the path may be a symbolic link.

    Raises:
        OSError: the file cannot be opened, is no regular file, or is too large; `strerror` says
            which, in words that can stand in a message.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a NUL in the path
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise OSError(errno.EINVAL, "a symbolic link, no regular file", str(path)) from error
        if error.errno == errno.ENXIO:
            raise OSError(errno.EINVAL, "a socket, no regular file", str(path)) from error
        raise
    try:
        _check_regular(path, os.fstat(descriptor), most_bytes)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path, *, most_bytes: int, follow_links: bool = True) -> bytes:
    """Read a file that a stranger may have made, whole; arguments and errors as `open_regular`."""
    with open_regular(path, most_bytes=most_bytes, follow_links=follow_links) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # one that grew, or that has no size of its own
        raise _too_large(path, most_bytes)
    return content


def name_file_kind(mode: int) -> str:
    """Name the kind of file of a `stat` mode, for a message."""
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "a special file")


def _check_regular(path: str | Path, status: os.stat_result, most_bytes: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = name_file_kind(status.st_mode)
        raise OSError(errno.EINVAL, f"{kind}, no regular file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        raise _too_large(path, most_bytes)


def _too_large(path: str | Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes", str(path))
