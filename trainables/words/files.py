"""Write files atomically, and safely open names and files that a stranger may have made."""

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from trainables.words.errors import ConfigError

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
    sync_to_disk(path.parent)  # so that the new name survives a power cut


def sync_to_disk(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk; OSError if that fails."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write indented JSON with sorted keys; NaN and infinity raise ValueError."""
    text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, text.encode())


def join_inside(folder: Path, name: object) -> Path:
    """Return `folder / name`; refuse an untrusted `name` that is empty or has a folder: `../x`."""
    if isinstance(name, str) and name not in ("", ".", "..") and "\0" not in name:
        path = folder / name
        if path.parent == folder and path.name == name:
            return path
    raise ConfigError(
        str(folder),
        f"{name!r} is not a plain name of a file in this folder, so the records were edited",
        "Copy the folder again, or train the trial again with --force",
    )


def open_regular(
    path: str | Path, *, most_bytes: int | None = None, follow_links: bool = True
) -> BufferedReader:
    """Open an untrusted file for reading, only if it is a regular file.

    The usual `open` would wait forever at a FIFO, and a device has no end. A file above
    `most_bytes` is refused. An accepted file may still grow, so read at most this many bytes, as
    `read_regular` does. `follow_links` is whether the last part of the path may be a symbolic link.

    Raises:
        OSError: the file is refused or cannot be opened; `strerror` is a text for a message.
    """
    follow_flag = 0 if follow_links else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | follow_flag)
    except ValueError as error:  # a NUL in the path
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    except OSError as error:  # ENXIO for a socket, ELOOP for a link that is not to be followed
        kind = {errno.ENXIO: "a socket", errno.ELOOP: "a symbolic link"}.get(error.errno or 0)
        if kind is None:
            raise
        raise OSError(errno.EINVAL, f"the path is {kind}, no regular file", str(path)) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        refusal = OSError(errno.EINVAL, f"the path is {kind}, no regular file", str(path))
    elif most_bytes is not None and status.st_size > most_bytes:
        refusal = _build_size_error(path, most_bytes)
    else:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise refusal


def read_regular(path: str | Path, *, most_bytes: int, follow_links: bool = True) -> bytes:
    """Read an untrusted file completely; arguments and errors are those of `open_regular`."""
    with open_regular(path, most_bytes=most_bytes, follow_links=follow_links) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # the file grew, or has no size, as in /proc
        raise _build_size_error(path, most_bytes)
    return content


def _build_size_error(path: str | Path, most_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"the file is larger than {most_bytes:,} bytes", str(path))
