"""Where data sets lie on this machine, and whether a folder is the one that is meant.

`data.root` says it; without it a data set is looked for by its usual names in the folders that
`$ABLATE_DATA` lists (as PATH does), else in those of the user's settings,
`$XDG_CONFIG_HOME/ablate/settings.toml` or `~/.config/ablate/settings.toml`:

    data = "/datasets"          or a list of folders

Each machine of a cluster looks by itself. Where nothing is found, or a folder above or below the
right one, the error says what was found, what was expected, and what to give instead.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.files.about import About
from trainables.errors import ConfigError
from trainables.machine.texts import user_path

VARIABLE = "ABLATE_DATA"
SHOWN = 6  # names of what a wrong folder holds


def data_folders() -> tuple[list[Path], str]:
    """The folders in which data sets lie, and who says so; ([], who could say so).

    Raises:
        ConfigError: settings that cannot be read.
    """
    named = os.environ.get(VARIABLE)
    if named:
        parts = [part for part in named.split(os.pathsep) if part.strip()]
        return [user_path(part, VARIABLE) for part in parts], f"${VARIABLE}"
    settings = settings_file()
    folders = _in_settings(settings) if settings.is_file() else []
    return folders, str(settings) if folders else f"${VARIABLE} (not set)"


def settings_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return user_path(home, "XDG_CONFIG_HOME") / "ablate" / "settings.toml"


def _in_settings(path: Path) -> list[Path]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            str(path), f"settings that cannot be read ({error})", 'TOML, as data = "/datasets"'
        ) from None
    given = content.get("data", [])
    folders = [given] if isinstance(given, str) else given
    if not isinstance(folders, list) or not all(isinstance(each, str) for each in folders):
        raise ConfigError(f"{path}: data", repr(given), "a folder, or a list of folders")
    return [user_path(each, f"{path}: data") for each in folders]


def usual_place(about: About) -> Path | None:
    """The first folder of a usual name in the data folders, as its makers unpack it if any is."""
    found: list[Path] = []
    for base in data_folders()[0]:
        try:
            inside = {entry.name.casefold(): entry for entry in sorted(base.iterdir())}
        except OSError:
            continue  # `ablate data list` says which of them cannot be read
        for name in about.folders:
            entry = inside.get(name.casefold())
            if entry is not None and entry.is_dir():
                found.append(entry)
    return next((place for place in found if _told(about, place)), found[0] if found else None)


def _told(about: About, root: Path) -> bool:
    try:
        return about.told_by(root) is not None
    except OSError:
        return False  # the next may be readable; if none is, reading this one says why


def given_root(config: DataConfig) -> Path | None:
    """Return `data.root` as a whole path; None without."""
    if config.root is None:
        return None
    return Path(os.path.realpath(user_path(config.root, "data.root")))


def root_of(config: DataConfig, about: About) -> Path:
    """The folder of a data set as it is unpacked.

    Raises:
        ConfigError: none is given or found, or it is another folder.
    """
    root = given_root(config)
    if root is None:
        place = usual_place(about)
        if place is None:
            raise _nowhere(config, about)
        root = Path(os.path.realpath(place))
    try:
        if about.told_by(root) is None:
            raise _wrong(about, root)
    except OSError as error:
        raise unreadable(root, error, about.expected) from error
    return root


def unreadable(root: Path, error: OSError, expected: str) -> ConfigError:
    return ConfigError(
        "data.root",
        f"{error.filename or root}: {error.strerror}",
        expected,
        "Check the path and its permissions",
    )


def _nowhere(config: DataConfig, about: About) -> ConfigError:
    folders, said = data_folders()
    where = f"in {', '.join(map(str, folders))} ({said})" if folders else f"by {said}"
    return ConfigError(
        "data.root",
        f"nothing, and none of {', '.join(about.folders)} {where}",
        f"the folder of {about.title}",
        f"Give data.root, or --dataset {config.name} --data-root DIR, or set {VARIABLE} to the "
        f"folder that it lies in; its makers offer it at {about.offered}",
    )


def _wrong(about: About, root: Path) -> ConfigError:
    """What was found in place of a data set's folder, and which one to give."""
    inside = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    below = [root / name for name in inside if _told(about, root / name)]
    above = next((p for p in (root.parent, root.parent.parent) if _told(about, p)), None)
    more = ", …" if len(inside) > SHOWN else ""
    holds = ", ".join(inside[:SHOWN]) + more if inside else "nothing"
    if below:
        found = f"{root}, the folder above the one of {about.title}"
        remedy = f"Give {below[0]}"
    elif above is not None:
        found = f"{root}, a folder inside the one of {about.title}"
        remedy = f"Give {above}"
    else:
        found = f"{root}, which holds {holds}"
        remedy = f"Give the folder to which it was unpacked; its makers offer it at {about.offered}"
    return ConfigError("data.root", found, about.expected, remedy)
