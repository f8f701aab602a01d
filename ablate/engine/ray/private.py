"""A folder for Ray's sessions on this machine that nobody else may enter.

Ray lets every user write into its own (`/tmp/ray`, mode 0777): sockets, logs, and files that its
processes unpickle, which is to run what is in them. Ours stands in a folder of this user's alone.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from trainables.errors import ConfigError

INNER = "r"  # Ray opens the folder it is given to everybody: so it is given one inside ours
# What a socket's path may have, less Ray's own part of it and ours.
OF_RAY = "/session_2026-11-23_00-00-00_000000_1234567/sockets/plasma_store"
NUMBER = max(str(os.getuid()), "12345678", key=len)  # eight letters, where our name is taken
OURS = f"/ray-{NUMBER}/{INNER}"
ROOM = (103 if sys.platform == "darwin" else 107) - len(OF_RAY) - len(OURS)


def private_folder() -> Path:
    """What Ray is to take for its temporary folder, in `$RAY_TMPDIR`, `$TMPDIR` or `/tmp`. One for
    all runs of a user, and short: sockets lie in it.

    Raises:
        ConfigError: no folder can be made there, or paths of sockets in it would be too long.
    """
    named = os.environ.get("RAY_TMPDIR")
    places = [Path(named).expanduser()] if named else [Path(tempfile.gettempdir()), Path("/tmp")]
    place = next(filter(_is_short, places), None)
    if place is None:
        raise ConfigError(
            "RAY_TMPDIR",
            f"{places[0]}, in which sockets of Ray would have paths that are too long",
            f"at most {ROOM} bytes",
            "Set RAY_TMPDIR to a folder with a shorter path",
        )
    ours = place / f"ray-{os.getuid()}"
    try:
        if not _is_ours(ours):  # somebody was there first
            ours = Path(tempfile.mkdtemp(prefix="ray-", dir=place))
    except OSError as error:
        raise ConfigError(
            str(place),
            f"no place for Ray's own files ({error.strerror})",
            "a folder that can be written",
            "Set RAY_TMPDIR to one with a short path",
        ) from error
    return ours / INNER


def _is_short(place: Path) -> bool:
    return len(os.fsencode(place)) <= ROOM


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder that only this user may enter; made where there is none."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # of a link, not of what it leads to
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    return private and found.st_uid == os.getuid()
