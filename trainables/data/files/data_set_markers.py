"""What its makers tell of a data set, and where it lies on this machine.

A tenth of SOP trains without a complaint, and its recall is another number than the paper's. So a
difference from its makers' counts is an error unless `data.allow_partial` (`--allow-partial`) goes
on with what is there.

`data.root` says where a data set lies; without it, it is looked for by its usual names in the
folders that `$ABLATE_DATA` lists (as PATH does). Each machine of a cluster looks by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.errors import ConfigError
from trainables.machine.texts import expand_user_path

VARIABLE = "ABLATE_DATA"
SHOWN = 6  # names in a message
GO_ON = (
    "unpack it again, or go on with what is there: --allow-partial (data.allow_partial: true), "
    "which makes it another data set with trials of its own."
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
        set alone tells it, so that a folder of which a part is missing is still recognised.
    folders: what its folder is usually called; the case does not matter.
    offered: where its makers offer it, and under which file names.
    classes: why its folders, taken for classes, would be another task; empty: they may be.
    counts: of its parts: train, val, test, query, gallery. counted: who says so.
    """

    title: str
    markers: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...]
    offered: str
    classes: str = ""
    counts: Mapping[str, Count] = field(default_factory=dict)
    counted: str = ""

    def find_markers(self, root: Path) -> str | None:
        """Return the files that tell `root` for this data set; None if it is not."""
        for names in self.markers:
            paths = [(root / name, name.endswith("/")) for name in names]
            if all(path.is_dir() if is_folder else path.is_file() for path, is_folder in paths):
                return " and ".join(names)
        return None

    def list_differences(self, counts: Mapping[str, Count]) -> list[str]:
        """Return a line for each part that is not as its makers say."""
        return [
            f"{part}: {counts.get(part, Count(0, 0))}, not {count}"
            for part, count in self.counts.items()
            if counts.get(part) != count
        ]

    def build_difference_error(self, different: Iterable[str], where: str) -> ConfigError:
        text = f"{self.title} in {where} differs from the counts of {self.counted} ("
        return ConfigError("data.root", f"{text}{'; '.join(different)}): {GO_ON}")


def join_names(names: Sequence[str]) -> str:
    """Return the first names, with dots where there are more."""
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def build_absence_error(absent: Sequence[str], listed: int, title: str, where: str) -> ConfigError:
    """Return the error of images that are listed and not there."""
    text = f"{len(absent):,} of {listed:,} images of {title} are listed and not there in {where} ("
    return ConfigError("data.root", f"{text}{join_names(absent)}): {GO_ON}")


def build_unreadable_error(root: Path, error: OSError) -> ConfigError:
    text = f"{error.filename or root} cannot be read ({error.strerror}): check the path and its "
    return ConfigError("data.root", f"{text}permissions.")


# ----------------------------------------------------------------------- where data sets lie


def list_data_folders() -> list[Path]:
    """Return the folders in which data sets lie, as `$ABLATE_DATA` lists them."""
    if variable := os.environ.get(VARIABLE):
        parts = [part for part in variable.split(os.pathsep) if part.strip()]
        return [expand_user_path(part, VARIABLE) for part in parts]
    home = expand_user_path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "XDG_CONFIG_HOME")
    if (settings := home / "ablate" / "settings.toml").is_file():
        message = f"this file was removed in 0.2.0: list its folders in {VARIABLE}, as PATH does."
        raise ConfigError(str(settings), message)
    return []


def get_given_root(config: DataConfig) -> Path | None:
    """Return `data.root` as a whole path; None without."""
    if config.root is None:
        return None
    return Path(os.path.realpath(expand_user_path(config.root, "data.root")))


def locate_root(config: DataConfig, about: About) -> Path:
    """Return the folder of a data set as it is unpacked; a ConfigError refuses another."""
    root = get_given_root(config)
    if root is None:
        folders = list_data_folders()
        root = next(_list_usual_folders(folders, about), None)
    if root is None:
        where = f"in {', '.join(map(str, folders))} (${VARIABLE})" if folders else "anywhere"
        raise ConfigError(
            "data.root",
            f"it is not given, and no folder {join_names(about.folders)} is found {where}: give "
            f"data.root, or --dataset {config.name} --data-root DIR, or set {VARIABLE} to the "
            f"folder that {about.title} lies in. Its makers offer it at {about.offered}.",
        )
    root = Path(os.path.realpath(root))
    try:
        if about.find_markers(root) is None:
            names = sorted(entry.name for entry in root.iterdir() if entry.name[0] != ".")
            markers = " or ".join(" and ".join(marker) for marker in about.markers)
            raise ConfigError(
                "data.root",
                f"{root} holds {join_names(names) or 'nothing'}, and not {markers}: give the "
                f"folder to which {about.title} was unpacked. It is offered at {about.offered}.",
            )
    except OSError as error:
        raise build_unreadable_error(root, error) from error
    return root


def _list_usual_folders(folders: Iterable[Path], about: About) -> Iterator[Path]:
    """Yield the folders of usual names, in the order of the data folders and of the names."""
    for base in folders:
        with suppress(OSError):  # `ablate data list` says which of them cannot be read
            by_name = {entry.name.casefold(): entry for entry in sorted(base.iterdir())}
            entries = (by_name.get(name.casefold()) for name in about.folders)
            yield from (entry for entry in entries if entry is not None and entry.is_dir())
