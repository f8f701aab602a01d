"""A folder for Ray's sessions on this machine that nobody else may enter.

Ray lets every user write into its own (`/tmp/ray`, mode 0777): sockets, logs, and files that its
processes unpickle, which is to run what is in them. Ours stands in a folder of this user's alone.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ablate.ledger.owner import Owner, host_name
from trainables.errors import ConfigError

INNER = "r"  # Ray opens the folder it is given to everybody: so it is given one inside ours
# What a socket's path may have, less Ray's own part of it and ours.
OF_RAY = "/session_2026-11-23_00-00-00_000000_1234567/sockets/plasma_store"
NUMBER = max(str(os.getuid()), "12345678", key=len)  # eight letters, where our name is taken
OURS = f"/ray-{NUMBER}/{INNER}"
SESSION = re.compile(r"session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+")
OWNER = "ablate-owner"  # the file in a session's folder that names the process that started Ray
QUIET_SECONDS = 86400.0  # the raylet of a live session writes into its logs every few seconds
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


def mark_session(session: Path) -> None:
    """Write into a session's folder that this process started it."""
    (session / OWNER).write_text(str(Owner.me()), encoding="utf-8")


def remove_dead_sessions(folder: Path) -> None:
    """Delete the folders of Ray sessions in `folder` whose processes are gone.

    Anything else in `folder` stays. Two runs may do this at once: a file that the other run has
    deleted already is skipped.
    """
    dead = [
        path
        for path in (folder.iterdir() if folder.is_dir() else ())
        if SESSION.fullmatch(path.name) and not path.is_symlink() and _has_ended(path)
    ]
    if not dead:
        return
    commands = _command_lines()
    for session in dead:
        # The owner may have been killed before the raylet that it started.
        if not any(session.name in line for line in commands):
            shutil.rmtree(session, ignore_errors=True)
    latest = folder / "session_latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


def _has_ended(session: Path) -> bool:
    """Whether the process that started a session is gone.

    A process of another host or container cannot be looked up here, and a session of an earlier
    version of this package has no mark: such a session has ended if nothing was written into it
    for `QUIET_SECONDS`.
    """
    try:
        owner = Owner.parse((session / OWNER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        owner = None
    if owner is not None and owner.host == host_name():
        return not owner.alive(time.time())
    changed = [session.lstat().st_mtime]
    for path in (session / "logs").glob("*"):
        with suppress(FileNotFoundError):
            changed.append(path.lstat().st_mtime)
    return time.time() - max(changed) > QUIET_SECONDS


def _command_lines() -> list[str]:
    lines = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines
