"""The output folder that `--out` names."""

from __future__ import annotations

import stat
from pathlib import Path

from trainables.errors import ConfigError
from trainables.machine.texts import user_path

OPTION = "--out"


def output_folder(given: str | Path) -> Path:
    """The folder, which need not be there yet.

    Raises:
        ConfigError: a path that none can have, a file, or a place that cannot be looked at.
    """
    folder = user_path(given, OPTION)
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        return folder
    except OSError as error:
        name = str(folder)
        shown = name if len(name) <= 200 else f"{name[:200]}…"
        raise ConfigError(
            OPTION,
            f"{shown}: {error.strerror}",
            "a folder, or where one can be made",
            "Name another one",
        ) from None
    if not stat.S_ISDIR(mode):
        raise ConfigError(OPTION, f"{folder}, which is no folder", "a folder", "Name another one")
    return folder
