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
    """Return the folders in which data sets lie, and who says so; ([], who could say so).

    Raises:
        ConfigError: settings that cannot be read.
    """
    if variable := os.environ.get(VARIABLE):
        parts = [part for part in variable.split(os.pathsep) if part.strip()]
        return [user_path(part, VARIABLE) for part in parts], f"${VARIABLE}"
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    settings = user_path(home, "XDG_CONFIG_HOME") / "ablate" / "settings.toml"
    folders = _read_settings(settings) if settings.is_file() else []
    return folders, str(settings) if folders else f"${VARIABLE} (not set)"


def _read_settings(path: Path) -> list[Path]:
    try:
        folders = tomllib.loads(path.read_text(encoding="utf-8")).get("data", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        found = f"settings that cannot be read ({error})"
        raise ConfigError(str(path), found, 'TOML, as data = "/datasets"') from None
    folders = [folders] if isinstance(folders, str) else folders
    if not isinstance(folders, list) or not all(isinstance(each, str) for each in folders):
        raise ConfigError(f"{path}: data", repr(folders), "a folder, or a list of folders")
    return [user_path(each, f"{path}: data") for each in folders]


def _find_usual_folder(about: About) -> Path | None:
    """Return the first folder of a usual name in the data folders, a complete one if there is."""
    candidates: list[Path] = []
    for base in data_folders()[0]:
        try:
            inside = {entry.name.casefold(): entry for entry in sorted(base.iterdir())}
        except OSError:
            continue  # `ablate data list` says which of them cannot be read
        entries = (inside.get(name.casefold()) for name in about.folders)
        candidates += [entry for entry in entries if entry is not None and entry.is_dir()]
    complete = (folder for folder in candidates if _is_root(about, folder))
    return next(complete, candidates[0] if candidates else None)


def _is_root(about: About, root: Path) -> bool:
    try:
        return about.find_markers(root) is not None
    except OSError:
        return False  # the next may be readable; if none is, reading this one says why


def given_root(config: DataConfig) -> Path | None:
    """Return `data.root` as a whole path; None without."""
    if config.root is None:
        return None
    return Path(os.path.realpath(user_path(config.root, "data.root")))


def root_of(config: DataConfig, about: About) -> Path:
    """Return the folder of a data set as it is unpacked.

    Raises:
        ConfigError: none is given or found, or it is another folder.
    """
    root = given_root(config) or _find_usual_folder(about)
    if root is None:
        folders, source = data_folders()
        where = f"in {', '.join(map(str, folders))} ({source})" if folders else f"by {source}"
        raise ConfigError(
            "data.root",
            f"nothing, and none of {', '.join(about.folders)} {where}",
            f"the folder of {about.title}",
            f"Give data.root, or --dataset {config.name} --data-root DIR, or set {VARIABLE} to the "
            f"folder that it lies in; its makers offer it at {about.offered}",
        )
    root = Path(os.path.realpath(root))
    try:
        if about.find_markers(root) is None:
            raise _wrong_root(about, root)
    except OSError as error:
        raise unreadable(root, error, about.expected) from error
    return root


def unreadable(root: Path, error: OSError, expected: str) -> ConfigError:
    found = f"{error.filename or root}: {error.strerror}"
    return ConfigError("data.root", found, expected, "Check the path and its permissions")


def _wrong_root(about: About, root: Path) -> ConfigError:
    """Return what was found in place of a data set's folder, and which one to give."""
    inside = sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
    nearby = [(root / name, "above") for name in inside]
    nearby += [(folder, "inside") for folder in (root.parent, root.parent.parent)]
    for folder, side in nearby:
        if _is_root(about, folder):
            article = "the" if side == "above" else "a"
            found = f"{root}, {article} folder {side} the one of {about.title}"
            return ConfigError("data.root", found, about.expected, f"Give {folder}")
    more = ", …" if len(inside) > SHOWN else ""
    found = f"{root}, which holds {', '.join(inside[:SHOWN]) or 'nothing'}{more}"
    remedy = f"Give the folder to which it was unpacked; its makers offer it at {about.offered}"
    return ConfigError("data.root", found, about.expected, remedy)
