"""Describe data sets as their makers offer them, and find them on this machine.

Training on a tenth of SOP works without complaint and gives another recall than the paper's. So a
difference from the makers' counts is an error, unless `data.allow_partial` (`--allow-partial`)
accepts it.

`data.root` is the folder of a data set. Without it, the folder is searched by its usual names in
the folders of `$ABLATE_DATA` (separated as in PATH). Each machine of a cluster searches separately.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.words.errors import ConfigError
from trainables.words.texts import expand_user_path

VARIABLE = "ABLATE_DATA"
MOST_NAMES = 8  # in a message


@dataclass(frozen=True)
class Count:
    """Number of classes (None: the makers do not state it) and images in a part of a data set."""

    classes: int | None
    images: int

    def __str__(self) -> str:
        classes = "" if self.classes is None else f" of {self.classes:,} classes"
        return f"{self.images:,} images{classes}"


@dataclass(frozen=True)
class About:
    """A data set as it is downloaded.

    Attributes:
        title: its name for readers.
        markers: sets of files (names may have wildcards) and folders (with a final slash) in its
            folder; each set is sufficient, so that an incomplete folder is recognised too.
        folders: usual names of its folder, in any case.
        offered: where its makers offer it, and under which file names.
        classes: why its folders must not be used as classes; empty if they may.
        counts: of its parts: train, val, test, query, gallery.
        counted: the source of the counts.
        metrics: metrics by which its makers compare, for `ablate evaluate`.
    """

    title: str
    markers: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...]
    offered: str
    classes: str = ""
    counts: Mapping[str, Count] = field(default_factory=dict)
    counted: str = ""
    metrics: tuple[str, ...] = ()

    def find_markers(self, root: Path) -> str | None:
        """Return the files that show that `root` is this data set, as "A and B"; or None."""
        for names in self.markers:
            paths = [(next(root.glob(name), root / name), name.endswith("/")) for name in names]
            if all(path.is_dir() if is_folder else path.is_file() for path, is_folder in paths):
                return " and ".join(names)
        return None

    def list_differences(self, counts: Mapping[str, Count]) -> list[str]:
        """Return a text for each part whose count in `counts` is not what the makers state."""
        differences = []
        for part, stated in self.counts.items():
            count = counts.get(part, Count(0, 0))
            if count != stated and (stated.classes is not None or count.images != stated.images):
                differences.append(f"{part}: {count}, not {stated} ({self.counted})")
        return differences


class DataMissing(ConfigError):
    """A published data set is not on this machine."""


def join_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    others = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + others


def build_unreadable_error(root: Path | str, error: OSError) -> ConfigError:
    return ConfigError(
        "data.root",
        f"{error.filename or root} cannot be read ({error.strerror})",
        "Check the path and its permissions",
    )


def list_data_folders() -> list[Path]:
    """Return the folders of `$ABLATE_DATA`."""
    parts = os.environ.get(VARIABLE, "").split(os.pathsep)
    return [expand_user_path(part, VARIABLE) for part in parts if part.strip()]


def resolve_data_root(config: DataConfig) -> Path | None:
    """Return `data.root` as an absolute path, or None."""
    if config.root is None:
        return None
    return Path(os.path.realpath(expand_user_path(config.root, "data.root")))


def locate_root(config: DataConfig, about: About) -> Path:
    """Return `data.root` or the data set's folder in $ABLATE_DATA; refuse one without its files."""
    root = resolve_data_root(config)
    if root is None:
        folders = list_data_folders()
        root = _find_usual_folder(folders, about)
        if root is None:
            raise DataMissing(
                "data.root",
                f"no folder is given, and no folder {join_names(about.folders)} is found "
                + (f"in {', '.join(map(str, folders))} (${VARIABLE})" if folders else "anywhere"),
                f"Set {VARIABLE} to the folder that has {about.title} in it, or give its own: "
                f"data.root in a spec, --data-root DIR, for `ablate evaluate` {config.name}=DIR. "
                f"{about.title} is at {about.offered}",
            )
    try:
        if about.find_markers(root) is None:
            names = sorted(entry.name for entry in root.iterdir() if entry.name[0] != ".")
            markers = " or ".join(" and ".join(marker) for marker in about.markers)
            raise ConfigError(
                "data.root",
                f"{root} holds {join_names(names) or 'nothing'}, but must hold {markers}",
                f"Give the folder to which {about.title}, offered at {about.offered}, was unpacked",
            )
    except OSError as error:
        raise build_unreadable_error(root, error) from error
    return root


def _find_usual_folder(folders: Iterable[Path], about: About) -> Path | None:
    """Return the first folder in `folders` with a usual name of the data set, in any case."""
    for base in folders:
        with suppress(OSError):  # `ablate data list` says which folders cannot be read
            by_name = {entry.name.casefold(): entry for entry in sorted(base.iterdir())}
            for name in about.folders:
                folder = by_name.get(name.casefold())
                if folder is not None and folder.is_dir():
                    return Path(os.path.realpath(folder))
    return None
