"""A folder of pictures, embedded by an exported model, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from torch import Tensor

from ablate.storage.checkpoints import weights_here
from ablate.values.terminal import say
from trainables import load
from trainables.core.pictures import list_pictures
from trainables.core.trial_folder import EXPORT, TRIALS
from trainables.data.files.first_pass import Picture, ahead, picture_pixels
from trainables.errors import ConfigError
from trainables.machine.progress import Progress
from trainables.machine.texts import unfit, user_path

if TYPE_CHECKING:
    from trainables.core.export import Model

BATCH = 64  # pictures embedded at once, and
MOST_BYTES = 2**28  # of their pixels, whichever comes first
PARTS = {"train", "val", "test"}


def model_of(given: str, device: str) -> Model:
    """Of an export, or of the folder of the trial that left it.

    Raises:
        ConfigError: there is none; as `trainables.load`.
    """
    path = user_path(given, "MODEL")
    path = path / EXPORT if path.is_dir() else path
    folder = path.parent
    if path.name == EXPORT and folder.parent.name == TRIALS:
        try:
            weights_here(folder.parent, folder.name)
        except OSError as error:
            raise ConfigError("MODEL", str(error), "a storage that answers") from error
    return load(path, device)


def listed(given: str) -> tuple[Path, list[Path]]:
    """The folder, and its pictures at any depth relative to it, sorted.

    Raises:
        ConfigError: no such folder, or no picture in it.
    """
    root = user_path(given, "FOLDER")
    return root, list_pictures(root, "FOLDER")


def class_names(paths: Sequence[Path]) -> list[str] | None:
    """The class folder of each; None where some lie in none, or all in one.

    Below `train/`, `test/` and `val/`, and nothing else, classes are a folder further down.
    """
    divided = {path.parts[0] for path in paths} <= PARTS and all(len(p.parts) > 2 for p in paths)
    depth = 1 if divided else 0
    if any(len(path.parts) <= depth + 1 for path in paths):
        return None
    names = [path.parts[depth] for path in paths]
    return names if len(set(names)) > 1 else None


def embedded(
    model: Model, root: Path, paths: Sequence[Path], bad: Callable[[Path, str], None]
) -> Iterator[tuple[list[int], Tensor]]:
    """Rows of `paths`, and their embeddings [B, E] float32 on the CPU.

    Decoded as the trial's own pictures were, then embedded as in its evaluation: the export names
    the sizes. What cannot be read is left out, and told to `bad` with the reason.
    """
    short = None if model.config.data.drawings else model.config.data.kept

    def one(picture: Picture) -> np.ndarray | str:
        if (what := unfit(str(picture.path))) is not None:
            return f"{what} in its name"
        try:
            return picture_pixels(picture, short)
        except ConfigError as fault:
            return f"{fault.found}; expected {fault.expected}"

    rows: list[int] = []
    pictures: list[Image.Image] = []
    held, progress = 0, Progress("embedding", len(paths))
    for row, made in enumerate(ahead(one, (Picture(root / path) for path in paths))):
        progress.at(row)
        if isinstance(made, str):
            bad(paths[row], made)
            continue
        rows.append(row)
        pictures.append(Image.fromarray(made))
        held += made.nbytes
        if len(rows) >= BATCH or held >= MOST_BYTES:
            yield rows, model.embed(pictures, BATCH)
            rows, pictures, held = [], [], 0
    if rows:
        yield rows, model.embed(pictures, BATCH)


class Unread:
    """Tells of each picture that cannot be read, by its name, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, path: Path, why: str) -> None:
        self.count += 1
        say(f"left out {path}: {why}", error=True)

    def all_of(self, root: Path) -> ConfigError:
        return ConfigError("FOLDER", f"no picture in {root} that can be read", "one that can be")
