"""Load an exported model, and embed a folder of pictures with it."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ablate.storage.checkpoints import fetch_weights
from ablate.values.terminal import print_text, show_progress
from trainables import load
from trainables.core.runtime import EXPORT, TRIALS
from trainables.errors import ConfigError
from trainables.evaluation.scores import PlainScore
from trainables.machine.texts import expand_user_path

if TYPE_CHECKING:
    from trainables.core.export import EmbeddedFolder, Model


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


def embed_folder(model: "Model", root: Path, paths: Sequence[Path]) -> "EmbeddedFolder":
    """Embed the pictures `paths` below `root`, and show the progress.

    Pictures that cannot be read are left out and printed on standard error with the reason.
    """
    with show_progress():
        folder = model.embed_folder(root, paths, argument="FOLDER")
    for path, reason in folder.unreadable.items():
        print_text(f"left out {path}: {reason}", error=True)
    return folder


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


def report_unreadable(folder: "EmbeddedFolder") -> int:
    """Print how many pictures cannot be read; return the exit code, 1 if there are any."""
    if n_unreadable := len(folder.unreadable):
        print_text(f"{n_unreadable} pictures could not be read, and are left out", error=True)
    return 1 if folder.unreadable else 0
