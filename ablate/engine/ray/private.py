"""A folder for Ray's sessions on this machine that nobody else may enter.

Ray lets every user write into its own (`/tmp/ray`, mode 0777): sockets, logs, and files that its
processes unpickle, which is to run what is in them. Ours stands in a folder of this user's alone.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from trainables.errors import ConfigError

INNER = "r"  # Ray opens the folder it is given to everybody: so it is given one inside ours


def private_folder() -> Path:
    """What Ray is to take for its temporary folder, in `$RAY_TMPDIR`, `$TMPDIR` or `/tmp`. One for
    all runs of a user, and short: sockets lie in it, whose paths end at 107 bytes.

    Raises:
        ConfigError: no folder can be made there.
    """
    place = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()).expanduser()
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


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder that only this user may enter; made where there is none."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # of a link, not of what it leads to
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    return private and found.st_uid == os.getuid()
