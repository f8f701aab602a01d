"""What its makers tell of a data set: how it is unpacked, how much it holds, who offers it.

A tenth of SOP trains without a complaint, and its recall is another number than the paper's. So a
difference from its makers' counts is an error unless `data.allow_partial` (`--allow-partial`) goes
on with what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainables.errors import ConfigError

SHOWN = 3  # missing images that are named
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
            if all(_is_there(root, name) for name in names):
                return " and ".join(names)
        return None

    @property
    def expected(self) -> str:
        ways = " or ".join(" and ".join(marker) for marker in self.markers)
        return f"the folder of {self.title} as it is unpacked, which holds {ways}"


def _is_there(root: Path, name: str) -> bool:
    return (root / name).is_dir() if name.endswith("/") else (root / name).is_file()


def differences(counts: Mapping[str, Count], about: About) -> list[str]:
    """Return a line for each part that is not as its makers say."""
    return [
        f"{part}: {counts.get(part, Count(0, 0))}, not {count}"
        for part, count in about.counts.items()
        if counts.get(part) != count
    ]


def difference(different: Iterable[str], about: About, where: str) -> ConfigError:
    found = f"{about.title} in {where} with {'; '.join(different)}"
    return ConfigError("data.root", found, f"the counts of {about.counted}", GO_ON)


def absence(absent: Sequence[str], listed: int, title: str, where: str) -> ConfigError:
    """Return the error of images that are listed and not there."""
    named = ", ".join(absent[:SHOWN]) + (", …" if len(absent) > SHOWN else "")
    found = f"{len(absent):,} of {listed:,} images of {title} listed and not there: {named}"
    return ConfigError("data.root", found, f"all of them in {where}", GO_ON)
