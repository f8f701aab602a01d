"""Any folder of class folders: `data.root`/<class>/**/<image>.

Images are files by these endings; what else lies there is passed over: other files, and files and
folders that archives and desktops leave behind (`__MACOSX`, names that begin with a dot). Links to
files are followed, links to folders only where they are classes.

Where the folder holds `train/` and `test/` (and perhaps `val/`), and nothing else but files, and
these hold class folders, that is its division; `data.split` deals the classes otherwise. The test
classes are then all among those that train (other images of them), or none is.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from trainables.config.images import DataConfig
from trainables.data.dataset import DATASETS, Row
from trainables.data.files.data_set_markers import join_names, resolve_data_root
from trainables.data.files.fileset import FileSet, Listing
from trainables.errors import ConfigError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")


@DATASETS.register("folder")
class Folder(FileSet):
    """Class folders of JPEG, PNG, WebP, BMP, TIFF or GIF images; other files are passed over."""

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
        rows = [
            Row((Path(part) / file).as_posix(), file.parts[0], part)
            for part in _list_parts(root) or [""]
            for file in _list_images(root / part)
        ]
        return Listing(root, root, rows)

    @classmethod
    def describe_row(cls, row: Row) -> str:
        """Return the row's part for the fingerprint, if any; its path says the class already."""
        return f"\x1f{row.part}" if row.part else ""


def _list_class_folders(root: Path) -> list[Path]:
    entries = (entry for entry in root.iterdir() if not _is_hidden_or_macos(entry.name))
    return sorted(entry for entry in entries if entry.is_dir())


def _list_parts(root: Path) -> list[str]:
    """Return which of train, val and test divide the folder; [] if its folders are classes."""
    parts = [entry.name for entry in _list_class_folders(root)]
    if not {"train"} < {*parts} <= {"train", "val", "test"}:  # train and another, nothing else
        return []
    without_classes = [part for part in parts if not _list_class_folders(root / part)]
    if "train" in without_classes:  # `train` is then the name of a class
        return []
    if without_classes:
        raise ConfigError(
            "data.root",
            f"{root} has class folders in train/, and none in {without_classes[0]}/",
            "Sort the images there into class folders",
        )
    if "test" not in parts:
        raise ConfigError(
            "data.root",
            f"{root} has train/ and val/, and no test/",
            "To test on val/, rename val/ to test/; validation classes are then held out of train/",
        )
    return [part for part in ("train", "val", "test") if part in parts]


def _list_images(root: Path) -> list[Path]:
    """Return the paths of all images relative to `root`, sorted; their first part is the class."""
    classes = _list_class_folders(root)
    if len(classes) < 2:
        raise ConfigError(
            "data.root",
            f"{root} has {len(classes)} class folders, and at least 2 are needed",
            "Give a folder that has a folder for each class",
        )
    images = {folder: [*iterate_images(folder)] for folder in classes}
    if empty := [folder.name for folder in classes if not images[folder]]:
        raise ConfigError(
            "data.root",
            f"{root} has class folders without a file that ends in {' '.join(SUFFIXES)}: "
            f"{join_names(empty)}",
            "Add images, or remove these folders",
        )
    files = [Path(file).relative_to(root) for group in images.values() for file in group]
    # Sort by parts of paths, so that files of a class are together whatever its name is.
    return sorted(files, key=lambda file: file.parts)


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


def iterate_images(folder: str | Path) -> Iterator[str]:
    """Yield the paths of images at any depth, also of broken links, which are refused later."""
    for item in os.scandir(folder):
        if _is_hidden_or_macos(item.name):
            continue
        if item.is_dir(follow_symlinks=False):
            yield from iterate_images(item.path)
        elif item.name.lower().endswith(SUFFIXES) and (item.is_file() or not Path(item).exists()):
            yield item.path


def _is_hidden_or_macos(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"
