"""What its makers tell of a data set, and where it lies on this machine.

A tenth of SOP trains without a complaint, and its recall is another number than the paper's. So a
difference from its makers' counts is an error unless `data.allow_partial` (`--allow-partial`) goes
on with what is there.

`data.root` says where a data set lies; without it, it is looked for by its usual names in the
folders that `$ABLATE_DATA` lists (as PATH does), else in those of the user's settings,
`$XDG_CONFIG_HOME/ablate/settings.toml` or `~/.config/ablate/settings.toml`:

    data = "/datasets"          or a list of folders

Each machine of a cluster looks by itself.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path

VARIABLE = "ABLATE_DATA"
SHOWN = 3  # missing images that are named
SHOWN_NAMES = 6  # of what a wrong folder holds
GO_ON = (
    "Unpack it again, or go on with what is there: --allow-partial (data.allow_partial: true), "
    "which makes it another data set with trials of its own"
)


@dataclass(frozen=True)
class Count:
    """Of one part of a data set."""

    classes: int
    images: int

    def __str__(self) -> str:
        return f"{self.images:,} images of {self.classes:,} classes"


@dataclass(frozen=True)
class About:
    """A data set as it is downloaded.

    title: what it is called.
    markers: sets of files, and of folders (with a slash at the end), relative to its folder; each
        set alone tells it.
    folders: what its folder is usually called; the case does not matter.
    offered: where its makers offer it, and under which file names.
    signs: what else tells it, where a part of it is not there; such a folder is not taken for class
        folders either.
    classes: why its folders, taken for classes, would be another task; empty: they may be.
    inner: folders inside it, in small letters, of which the same is true.
    counts: of its parts: train, val, test, query, gallery. counted: who says so.
    """

    title: str
    markers: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...]
    offered: str
    signs: tuple[tuple[str, ...], ...] = ()
    classes: str = ""
    inner: tuple[str, ...] = ()
    counts: Mapping[str, Count] = field(default_factory=dict)
    counted: str = ""

    def find_markers(self, root: Path, *, signs: bool = False) -> str | None:
        """Return the files that tell `root` for this data set; None if it is not.

        Args:
            signs: whether a part of the data set is enough.

        Raises:
            OSError: it cannot be looked at.
        """
        for names in (*self.markers, *(self.signs if signs else ())):
            paths = [(root / name, name.endswith("/")) for name in names]
            if all(path.is_dir() if is_folder else path.is_file() for path, is_folder in paths):
                return " and ".join(names)
        return None

    def is_root(self, folder: Path) -> bool:
        """Return whether a folder can be looked at and is this data set's."""
        with suppress(OSError):
            return self.find_markers(folder) is not None
        return False

    @property
    def expected_folder(self) -> str:
        ways = " or ".join(" and ".join(marker) for marker in self.markers)
        return f"the folder of {self.title} as it is unpacked, which holds {ways}"

    def list_differences(self, counts: Mapping[str, Count]) -> list[str]:
        """Return a line for each part that is not as its makers say."""
        return [
            f"{part}: {counts.get(part, Count(0, 0))}, not {count}"
            for part, count in self.counts.items()
            if counts.get(part) != count
        ]

    def build_difference_error(self, different: Iterable[str], where: str) -> ConfigError:
        found = f"{self.title} in {where} with {'; '.join(different)}"
        return ConfigError("data.root", found, f"the counts of {self.counted}", GO_ON)


def build_absence_error(absent: Sequence[str], listed: int, title: str, where: str) -> ConfigError:
    """Return the error of images that are listed and not there."""
    named = ", ".join(absent[:SHOWN]) + (", …" if len(absent) > SHOWN else "")
    found = f"{len(absent):,} of {listed:,} images of {title} listed and not there: {named}"
    return ConfigError("data.root", found, f"all of them in {where}", GO_ON)


def build_unreadable_error(root: Path, error: OSError, expected: str) -> ConfigError:
    found = f"{error.filename or root}: {error.strerror}"
    return ConfigError("data.root", found, expected, "Check the path and its permissions")


# ----------------------------------------------------------------------- where data sets lie


def list_data_folders() -> tuple[list[Path], str]:
    """Return the folders in which data sets lie, and who says so; ([], who could say so).

    Raises:
        ConfigError: settings that cannot be read.
    """
    if variable := os.environ.get(VARIABLE):
        parts = [part for part in variable.split(os.pathsep) if part.strip()]
        return [expand_user_path(part, VARIABLE) for part in parts], f"${VARIABLE}"
    home = expand_user_path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "XDG_CONFIG_HOME")
    settings = home / "ablate" / "settings.toml"
    try:
        text = settings.read_text(encoding="utf-8") if settings.is_file() else ""
        folders = tomllib.loads(text).get("data", [])
    except (OSError, ValueError) as error:  # of UTF-8 and TOML
        found = f"settings that cannot be read ({error})"
        raise ConfigError(str(settings), found, 'TOML, as data = "/datasets"') from None
    folders = [folders] if isinstance(folders, str) else folders
    if not isinstance(folders, list) or not all(isinstance(each, str) for each in folders):
        raise ConfigError(f"{settings}: data", repr(folders), "a folder, or a list of folders")
    paths = [expand_user_path(each, f"{settings}: data") for each in folders]
    return paths, str(settings) if paths else f"${VARIABLE} (not set)"


def get_given_root(config: DataConfig) -> Path | None:
    """Return `data.root` as a whole path; None without."""
    if config.root is None:
        return None
    return Path(os.path.realpath(expand_user_path(config.root, "data.root")))


def locate_root(config: DataConfig, about: About) -> Path:
    """Return the folder of a data set as it is unpacked.

    Raises:
        ConfigError: none is given or found, or it is another folder.
    """
    root = get_given_root(config)
    if root is None:
        folders, source = list_data_folders()
        usual = list(_list_usual_folders(folders, about))
        root = next(filter(about.is_root, usual), usual[0] if usual else None)
    if root is None:
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
            inside = sorted(entry.name for entry in root.iterdir() if entry.name[0] != ".")
            names = ", ".join(inside[:SHOWN_NAMES]) + (", …" if len(inside) > SHOWN_NAMES else "")
            found = f"{root}, which holds {names or 'nothing'}"
            remedy = f"Give the folder to which it was unpacked; it is offered at {about.offered}"
            raise ConfigError("data.root", found, about.expected_folder, remedy)
    except OSError as error:
        raise build_unreadable_error(root, error, about.expected_folder) from error
    return root


def _list_usual_folders(folders: Iterable[Path], about: About) -> Iterator[Path]:
    """Yield the folders of usual names, in the order of the data folders and of the names."""
    for base in folders:
        with suppress(OSError):  # `ablate data list` says which of them cannot be read
            inside = {entry.name.casefold(): entry for entry in sorted(base.iterdir())}
            entries = (inside.get(name.casefold()) for name in about.folders)
            yield from (entry for entry in entries if entry is not None and entry.is_dir())
