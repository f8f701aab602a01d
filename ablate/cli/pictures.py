"""A folder of pictures, embedded by an exported model, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ablate.storage.checkpoints import weights_here
from ablate.values.terminal import progress_shown, say
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


@dataclass(frozen=True)
class EmbeddedFolder:
    """The pictures of a folder that could be read.

    paths: below root, sorted. embeddings: [N, E] float32 on the CPU. classes: [N], or None.
    unread: how many pictures were left out.
    """

    root: Path
    paths: list[Path]
    embeddings: Tensor
    classes: list[str] | None
    unread: int


def load_model(given: str, device: str) -> Model:
    """Load an export, or that in the folder of the trial that left it.

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


def list_folder(given: str) -> tuple[Path, list[Path]]:
    """Return the folder, and its pictures at any depth relative to it, sorted.

    Raises:
        ConfigError: no such folder, or no picture in it.
    """
    root = user_path(given, "FOLDER")
    return root, list_pictures(root, "FOLDER")


def name_classes(paths: Sequence[Path]) -> list[str] | None:
    """Return the class folder of each; None where some lie in none, or all in one.

    Below `train/`, `test/` and `val/`, and nothing else, classes are a folder further down.
    """
    divided = {path.parts[0] for path in paths} <= PARTS and all(len(p.parts) > 2 for p in paths)
    depth = 1 if divided else 0
    if any(len(path.parts) <= depth + 1 for path in paths):
        return None
    names = [path.parts[depth] for path in paths]
    return names if len(set(names)) > 1 else None


def embed_folder(model: Model, root: Path, paths: Sequence[Path]) -> EmbeddedFolder:
    """Embed pictures below `root` as the trial's own were decoded and evaluated.

    What cannot be read is left out, and named on standard error with the reason.

    Raises:
        ConfigError: no picture can be read.
    """
    short = None if model.config.data.drawings else model.config.data.kept

    def decode(picture: Picture) -> np.ndarray | str:
        if (what := unfit(str(picture.path))) is not None:
            return f"{what} in its name"
        try:
            return picture_pixels(picture, short)
        except ConfigError as fault:
            return fault.message

    readable: list[Path] = []
    blocks: list[Tensor] = []
    batch: list[Image.Image] = []
    batch_bytes, progress = 0, Progress("embedding", len(paths))
    with progress_shown():
        pictures = (Picture(root / path) for path in paths)
        for row, pixels in enumerate(ahead(decode, pictures)):
            progress.at(row)
            if isinstance(pixels, str):
                say(f"left out {paths[row]}: {pixels}", error=True)
                continue
            readable.append(paths[row])
            batch.append(Image.fromarray(pixels))
            batch_bytes += pixels.nbytes
            if len(batch) >= BATCH or batch_bytes >= MOST_BYTES:
                blocks.append(model.embed(batch, BATCH))
                batch, batch_bytes = [], 0
        if batch:
            blocks.append(model.embed(batch, BATCH))
    unread = len(paths) - len(readable)
    if not blocks:
        raise ConfigError("FOLDER", f"no picture in {root} that can be read", "one that can be")
    return EmbeddedFolder(root, readable, torch.cat(blocks), name_classes(readable), unread)
