"""A node whose own disk is full: in which folder, and what keeps its slots until there is room.

A trial that finds no room there goes to another node at once. The slot that it leaves would be
given to the next one, which finds none either, and so on through the whole queue; hence `hold`,
which takes the slot in its place.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

CODES = (errno.ENOSPC, errno.EDQUOT)
ENOUGH = 1 << 30  # bytes; of a small disk
SHARE = 20  # one part of so many
LOOK_SECONDS = 2.0


def lacks_room(folder: Path) -> bool:
    """Whether its disk has less than 1 GiB left, or of a small disk less than a twentieth."""
    while not folder.exists():
        folder = folder.parent
    disk = shutil.disk_usage(folder)
    return disk.free < min(ENOUGH, disk.total // SHARE)


def full_folder(error: BaseException | None, folders: Iterable[Path]) -> Path | None:
    """Of what this node writes, the first whose disk lacks room; None where a full disk is not
    behind the error, or another one, or a quota, of which nobody can tell when it has room."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in CODES:
            return next((folder for folder in folders if lacks_room(folder)), None)
        error = error.__cause__ or error.__context__
    return None


def hold(folder: str) -> None:
    """Until there is room."""
    while lacks_room(Path(folder)):
        time.sleep(LOOK_SECONDS)
