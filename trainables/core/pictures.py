"""The pictures of a folder, in the order in which their embeddings come."""

from __future__ import annotations

from pathlib import Path

from trainables.data.sets.folder import SUFFIXES, iterate_images
from trainables.errors import ConfigError


def list_pictures(root: Path, place: str = "images") -> list[Path]:
    """Return the pictures of a folder at any depth, relative to it and sorted.

    Args:
        place: what a message calls the folder.
    """
    try:
        linked = [entry for entry in root.iterdir() if entry.is_symlink() and entry.is_dir()]
        files = {file for each in (root, *linked) for file in iterate_images(each)}
    except OSError as error:
        raise ConfigError(place, f"{root}: {error.strerror}") from error
    if not files:
        raise ConfigError(place, f"no picture in {root}, a file ending in {' '.join(SUFFIXES)}")
    return sorted((Path(file).relative_to(root) for file in files), key=lambda file: file.parts)
