"""Load an exported model, and embed a folder of pictures with it."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ablate.storage.checkpoints import fetch_weights
from ablate.values.terminal import print_text, show_progress
from trainables import load
from trainables.core.trial_folder import EXPORT, TRIALS
from trainables.data.decode import Picture, decode_picture, map_ahead
from trainables.errors import ConfigError
from trainables.evaluation.scores import PlainScore
from trainables.machine.progress import Progress
from trainables.machine.texts import expand_user_path, find_unfit_character

if TYPE_CHECKING:
    from trainables.core.export import Model

BATCH = 64  # most pictures that are embedded at once
MOST_BYTES = 2**28  # bytes of pixels at which a batch is embedded before it is full


class EmbeddedFolder(NamedTuple):
    """Hold paths and embeddings [N, E] of a folder's readable pictures; count the others."""

    paths: list[Path]
    embeddings: Tensor
    n_unreadable: int


def load_model(model: str, device: str) -> "Model":
    """Load a trained model from a weights file or its trial's folder, or fetch it from storage."""
    path = expand_user_path(model, "MODEL")
    path = path / EXPORT if path.is_dir() else path
    folder = path.parent
    if path.name == EXPORT and folder.parent.name == TRIALS:
        try:
            fetch_weights(folder.parent, folder.name)
        except OSError as error:
            raise ConfigError(
                "MODEL", f"the storage does not answer ({error})", "Try again when it does"
            ) from error
    return load(path, device)


def embed_folder(model: "Model", root: Path, paths: Sequence[Path]) -> EmbeddedFolder:
    """Embed the pictures `paths` below `root` with the preprocessing of the trial's evaluation.

    Pictures that cannot be read are skipped and printed on standard error with the reason.
    """
    data = model.config.data
    short_side = None if data.drawings else data.stored_short_side  # None: that of the file

    def decode_or_explain(picture: Picture) -> np.ndarray | str:
        """Return the pixels of a picture, or why it cannot be used."""
        if (character := find_unfit_character(str(picture.path))) is not None:
            return f"its name has {character}"
        try:
            return decode_picture(picture, short_side)
        except ConfigError as error:
            return error.message

    readable: list[Path] = []
    blocks: list[Tensor] = []  # the embeddings of each batch
    batch: list[Image.Image] = []
    n_bytes, progress = 0, Progress("embedding", len(paths))
    with show_progress():
        decoded = map_ahead(decode_or_explain, (Picture(root / path) for path in paths))
        for number, (path, pixels) in enumerate(zip(paths, decoded, strict=True)):
            progress.update(number)
            if isinstance(pixels, str):
                print_text(f"left out {path}: {pixels}", error=True)
                continue
            readable.append(path)
            batch.append(Image.fromarray(pixels))
            n_bytes += pixels.nbytes
            if len(batch) == BATCH or n_bytes >= MOST_BYTES:
                blocks.append(model.embed(batch, BATCH))
                batch, n_bytes = [], 0
        if batch:
            blocks.append(model.embed(batch, BATCH))
    if not blocks:
        raise ConfigError("FOLDER", f"no picture in {root} can be read", "Name another folder")
    return EmbeddedFolder(readable, torch.cat(blocks), len(paths) - len(readable))


def build_index(model: "Model", embeddings: Tensor) -> tuple[Any, np.ndarray] | None:
    """Build a flat faiss index that compares as the trial's evaluation does.

    Returns:
        An `IndexFlatIP` or `IndexFlatL2`, and the rows in it, [N, E], of unit length if the model
        compares by the cosine. None if faiss is not installed or has no such measure, as for
        hyperbolic losses.
    """
    score = model.network.retrieval_score()
    if not isinstance(score, PlainScore) or find_spec("faiss") is None:
        return None
    import faiss

    rows = np.ascontiguousarray(score.prepare(embeddings).numpy(), np.float32)
    kind = faiss.IndexFlatIP if score.kind == "dot" else faiss.IndexFlatL2
    index = kind(rows.shape[1])
    index.add(rows)
    return index, rows


def report_unreadable(folder: EmbeddedFolder) -> int:
    """Print how many pictures cannot be read; return the exit code, 1 if there are any."""
    if folder.n_unreadable:
        text = f"{folder.n_unreadable} pictures could not be read, and are left out"
        print_text(text, error=True)
    return 1 if folder.n_unreadable else 0
