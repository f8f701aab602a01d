"""Any folder of class folders: `data.root`/<class>/**/<image>.

Images are files with an ending of a format that is read (`decode.FORMATS`). What else lies there is
passed over and counted by ending. Files and folders that archives and desktops leave behind
(`__MACOSX`, names that begin with a dot) are not counted. Links to files are followed, links to
folders only where they are classes.

The folder is divided if its folders are called train, val, test, query and gallery (in any
capitals; also training, valid, validation, testing) and hold class folders. `query` and `gallery`
are the two roles of test images. `data.split` deals the classes otherwise. The test classes are
then all among those that train (other images of them), or none is.

A class has images beside each other somewhere: `root/<class>/images/1.jpg` is read, but where the
images of a folder lie in several folders, these could be its classes, so that is refused.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from trainables.config.images import DataConfig
from trainables.data.archives import join_names, resolve_data_root
from trainables.data.dataset import DATASETS, PART_NAMES, PARTS, ROLES, Listing, Row
from trainables.data.decode import FORMATS
from trainables.data.fileset import FileSet
from trainables.words.errors import ConfigError

# endings that Pillow registers for the formats; JPEG's plugin reads those of MPO
SUFFIXES = tuple(
    sorted(
        ending
        for ending, name in Image.registered_extensions().items()
        if name in (*FORMATS, "MPO")
    )
)
# name of a folder → part and role of its images
PART_FOLDERS = {
    **{name: (part, "") for name, part in PART_NAMES.items()},
    **{role: ("test", role) for role in ("query", "gallery")},
}
EITHER = (
    "If these are splits, call them train, val and test (or query and gallery) and leave nothing "
    "else beside them; if they are classes, put the images of each directly into it, or list all "
    "images in a CSV file (data.name: manifest)"
)


class PartFolder(NamedTuple):
    """A folder of class folders in `data.root`, by its name, whose images have one part and role.

    The name "" stands for `data.root`.
    """

    name: str
    part: str = ""
    role: str = ""


@DATASETS.register("folder")
class Folder(FileSet):
    """Class folders of images in any format that Pillow reads; other files are passed over."""

    @classmethod
    def locate_root(cls, config: DataConfig) -> Path:
        """Return `data.root`, which must be given: the data set has no usual folder."""
        root = resolve_data_root(config)
        if root is None:
            raise ConfigError(
                "data.root",
                "no folder is given",
                "Give --data-root DIR, a folder of class folders. For `ablate evaluate`, give "
                "folder=DIR",
            )
        return root

    @classmethod
    def rows(cls, root: Path, config: DataConfig) -> Listing:
        """List the images of the class folders in `root`, or in its folders train, val and test."""
        _refuse_known_archive(root)
        rows, empty, passed_over = list[Row](), list[str](), Counter[str]()
        parts = _list_parts(root)
        for name, part, role in parts or [PartFolder("")]:
            files, without_images = _list_images(root / name, passed_over, part)
            rows += [Row((name / file).as_posix(), file.parts[0], part, role) for file in files]
            empty += [str(Path(name) / label) for label in without_images]
        if parts:
            _count_files(root, passed_over)
        kinds = sorted(passed_over.items(), key=lambda pair: (-pair[1], pair[0]))
        counts = [f"{count:,} {kind}" for kind, count in kinds]
        note = f"files passed over in {root}: {join_names(counts) or 'none'}"
        if not rows:
            raise ConfigError(
                "data.root",
                f"{root} has no image in its class folders: {join_names(empty)}",
                "Add images, whose names must have the ending of a format that Pillow reads "
                f"({note})",
            )
        return Listing(root, root, rows, empty, [note] if counts else [])

    @classmethod
    def describe_row(cls, row: Row) -> str:
        """Return the row's part for the fingerprint, if any; its path says the class already."""
        return "".join(f"\x1f{text}" for text in (row.part, row.role) if text)


def _list_folders(root: Path) -> list[Path]:
    entries = (entry for entry in root.iterdir() if not _is_hidden_or_macos(entry.name))
    return sorted(entry for entry in entries if entry.is_dir())


def _list_parts(root: Path) -> list[PartFolder]:
    """Return the folders that divide `root`, in the order of parts; [] if they are classes."""
    names = [folder.name for folder in _list_folders(root)]
    kinds = {name: PART_FOLDERS.get(name.strip().lower()) for name in names}
    parts = [PartFolder(name, *kind) for name, kind in kinds.items() if kind]
    others = [name for name, kind in kinds.items() if not kind]
    divided = [part.name for part in parts if _list_folders(root / part.name)]
    if len(parts) < 2 or (others and not divided):  # these are names of classes
        return []
    listed, bare = _join([part.name for part in parts]), {part.name for part in parts} - {*divided}
    if others:
        raise ConfigError(
            "data.root", f"{root} has {listed}, and {_join(others)} beside them", EITHER
        )
    if bare:
        raise ConfigError(
            "data.root",
            f"{root} has "
            f"{f'class folders in {_join(divided)}, and none' if divided else 'no class folders'} "
            f"in {_join(sorted(bare))}",
            "Sort the images there into class folders, or remove these folders",
        )
    by_kind = {(part, role): name for name, part, role in parts}
    roles = {role for part, role in by_kind if part == "test"}
    if len(by_kind) < len(parts):
        raise ConfigError(
            "data.root",
            f"{root} has {listed}, of which two are the same part",
            "Keep one folder for each part",
        )
    if not roles:
        raise ConfigError(
            "data.root",
            f"{root} has {listed}, and no test/",
            f"To test on {by_kind['val', '']}/, rename {by_kind['val', '']}/ to test/; validation "
            f"classes are then held out of {by_kind['train', '']}/",
        )
    if roles not in ({""}, {"query", "gallery"}):
        raise ConfigError(
            "data.root",
            f"{root} has {listed}, but test images are in test/, or in query/ and gallery/",
            "Give either test/ alone, or both query/ and gallery/",
        )
    return sorted(parts, key=lambda part: (PARTS.index(part.part), [*ROLES].index(part.role)))


def _join(names: Sequence[str]) -> str:
    """Return the first names of folders, each with a slash."""
    return join_names([f"{name}/" for name in names])


def _list_images(
    root: Path, passed_over: Counter[str], part: str = ""
) -> tuple[list[Path], list[str]]:
    """Return the images of class folders, and the names of class folders without an image.

    The paths are relative to `root` and sorted; their first part is the class. Other files are
    counted in `passed_over` by kind. A `part` for validation may have one class, of which the plan
    warns.
    """
    images = {folder.name: [*iterate_images(folder, passed_over)] for folder in _list_folders(root)}
    filled = [name for name, files in images.items() if files]
    unclear = [name for name in filled if not _has_files_at_top(images[name])]
    if unclear and len(filled) == 1:
        raise ConfigError(
            "data.root",
            f"{root} has images in the folder {filled[0]}/ alone, where they lie in several "
            "folders",
            f"If these are classes or splits, give {root / filled[0]}",
        )
    if unclear:
        raise ConfigError(
            "data.root",
            f"the images of {_join(unclear)} in {root} lie in several folders each, with none "
            "beside these folders",
            EITHER,
        )
    if len(images) < (1 if part == "val" else 2):
        raise ConfigError(
            "data.root",
            f"the number of class folders in {root} is {len(images)}, and at least 2 are needed",
            "Add class folders to it" if part else "Give a folder that has a folder for each class",
        )
    _count_files(root, passed_over)
    files = [Path(file).relative_to(root) for group in images.values() for file in group]
    # Sort by parts of paths, so that files of a class are together whatever its name is.
    files.sort(key=lambda file: file.parts)
    return files, [name for name, group in images.items() if not group]


def _has_files_at_top(files: Sequence[str]) -> bool:
    """Return whether some of the files lie in the deepest folder that holds all of them."""
    folders = {os.path.dirname(file) for file in files}  # noqa: PTH120 - a Path for each is slow
    return not folders or os.path.commonpath(folders) in folders


def _refuse_known_archive(root: Path) -> None:
    """Refuse the unpacked archive of a known data set whose folders are not its classes.

    `About.classes` says why: trials with the folders as classes would solve another task.
    """
    for name in DATASETS:
        about = DATASETS[name].ABOUT
        if about is not None and about.classes and (marker := about.find_markers(root)):
            raise ConfigError(
                "data.root",
                f"{root} is the unpacked {about.title} (with {marker}), and {about.classes}",
                f"Give data.name: {name}, with this folder as its root (--dataset {name} "
                f"--data-root {root})",
            )


def iterate_images(folder: str | Path, passed_over: "Counter[str] | None" = None) -> Iterator[str]:
    """Yield the paths of images at any depth, also of broken links, which are refused later.

    Other files are counted in `passed_over` by kind.
    """
    for item in os.scandir(folder):
        if _is_hidden_or_macos(item.name):
            continue
        if item.is_dir(follow_symlinks=False):
            yield from iterate_images(item.path, passed_over)
        elif item.name.lower().endswith(SUFFIXES) and (item.is_file() or not Path(item).exists()):
            yield item.path
        elif passed_over is not None:
            kind = "linked folders" if item.is_dir() else _find_ending(item.name)
            is_image = item.name.lower().endswith(SUFFIXES)  # of a pipe or a device
            passed_over[kind + " that are no files" * is_image] += 1


def _count_files(folder: Path, passed_over: Counter[str]) -> None:
    """Count the files directly in a folder of class folders, which belong to no class."""
    for item in os.scandir(folder):
        if not _is_hidden_or_macos(item.name) and not item.is_dir():
            is_image = item.name.lower().endswith(SUFFIXES)
            place = " beside the class folders" if is_image else ""
            passed_over[_find_ending(item.name) + place] += 1


def _find_ending(name: str) -> str:
    """Return the ending of a file's name in lower case, or "without ending"."""
    ending = re.search(r"\.\w{1,12}$", name.lower())
    return ending[0] if ending else "without ending"


def _is_hidden_or_macos(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
