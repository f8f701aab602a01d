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

KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


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


def join_inside(folder: Path, name: object) -> Path:
    """Return `folder / name`, of a name that somebody else wrote down: it leads nowhere else.

    Raises:
        ConfigError: `name` is no plain file name (`../x`, `/x`, `a/b`, ``, `..`).
    """
    if isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name:
        path = folder / name
        if path.parent == folder and path.name == name:
            return path
    raise ConfigError(
        str(folder),
        f"{name!r} is not a name without a path, as a file in this folder has. Its records were "
        "edited: copy the folder anew, or train the trial again (--force)",
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
        kinds = {errno.ENXIO: "a socket"}
        if not follow_links:
            kinds[errno.ELOOP] = "a symbolic link"
        if error.errno not in kinds:
            raise
        what = f"{kinds[error.errno]}, no regular file"
        raise OSError(errno.EINVAL, what, str(path)) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        raise OSError(errno.EINVAL, f"{kind}, no regular file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        os.close(descriptor)
        raise _build_size_error(path, most_bytes)
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path, *, most_bytes: int, follow_links: bool = True) -> bytes:
    """Read a file that a stranger may have made, whole; arguments and errors as `open_regular`."""
    with open_regular(path, most_bytes=most_bytes, follow_links=follow_links) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # one that grew, or that has no size of its own
        raise _build_size_error(path, most_bytes)
    return content


def _build_size_error(path: str | Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes", str(path))
