"""A folder of pictures, embedded by an exported model, and the nearest of each.

Nearest by the score that the model was evaluated with: faiss searches exactly where that is ⟨q, r⟩
or −‖q − r‖²; else all pairs are scored by the model.
"""

from __future__ import annotations

from collections.abc import Sequence
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

BATCH = 64  # pictures embedded at once, and
MOST_BYTES = 2**28  # of their pixels, whichever comes first
QUERIES, REFERENCES = 64, 4096  # compared at once
PARTS = {"train", "val", "test"}


class EmbeddedFolder(NamedTuple):
    """The pictures of a folder that could be read.

    paths: below root, sorted. embeddings: [N, E] float32 on the CPU. classes: [N], or None.
    unread: how many pictures were left out.
    """

    root: Path
    paths: list[Path]
    embeddings: Tensor
    classes: list[str] | None
    unread: int


class Query(NamedTuple):
    """A picture and the others that are nearest to it.

    scores: of each, larger is closer. same: whether each is of its class; None: there are none.
    """

    path: Path
    near: list[Path]
    scores: list[float]
    same: list[bool | None]

    @property
    def hit(self) -> bool:
        """Whether the nearest is of its class."""
        return bool(self.same[0])


def load_model(model: str, device: str) -> Model:
    """Load an export, or that in the folder of the trial that left it.

    Raises:
        ConfigError: there is none; as `trainables.load`.
    """
    path = expand_user_path(model, "MODEL")
    path = path / EXPORT if path.is_dir() else path
    folder = path.parent
    if path.name == EXPORT and folder.parent.name == TRIALS:
        try:
            fetch_weights(folder.parent, folder.name)
        except OSError as error:
            raise ConfigError("MODEL", f"the storage does not answer: {error}") from error
    return load(path, device)


def find_class_names(paths: Sequence[Path]) -> list[str] | None:
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
    short = None if model.config.data.drawings else model.config.data.stored_short_side

    def decode(picture: Picture) -> np.ndarray | str:
        if (what := find_unfit_character(str(picture.path))) is not None:
            return f"{what} in its name"
        try:
            return decode_picture(picture, short)
        except ConfigError as fault:
            return fault.message

    readable: list[Path] = []
    blocks: list[Tensor] = []
    batch: list[Image.Image] = []
    batch_bytes, progress = 0, Progress("embedding", len(paths))
    pictures = (Picture(root / path) for path in paths)
    with show_progress():
        for row, pixels in enumerate(map_ahead(decode, pictures)):
            progress.update(row)
            if isinstance(pixels, str):
                print_text(f"left out {paths[row]}: {pixels}", error=True)
                continue
            readable.append(paths[row])
            batch.append(Image.fromarray(pixels))
            batch_bytes += pixels.nbytes
            if len(batch) >= BATCH or batch_bytes >= MOST_BYTES:
                blocks.append(model.embed(batch, BATCH))
                batch, batch_bytes = [], 0
        if batch:
            blocks.append(model.embed(batch, BATCH))
    if not blocks:
        raise ConfigError("FOLDER", f"no picture in {root} can be read")
    unread = len(paths) - len(readable)
    return EmbeddedFolder(root, readable, torch.cat(blocks), find_class_names(readable), unread)


def build_index(model: Model, embeddings: Tensor) -> tuple[Any, np.ndarray] | None:
    """Build a flat faiss index, in which every pair is compared as in the trial's evaluation.

    Args:
        embeddings: [N, E]; row i of the index is the i-th.

    Returns:
        An `IndexFlatIP` for "dot", an `IndexFlatL2` for "euclidean", and the rows in it [N, E], of
        unit length where the model compares by the cosine. None where the model compares by a score
        of its own (`method.idml.test_metric: introspective`, hyperbolic losses), or where faiss is
        not installed.
    """
    score = model.network.retrieval_score()
    if not isinstance(score, PlainScore):
        return None
    try:
        import faiss
    except ImportError:
        return None
    rows = np.ascontiguousarray(score.prepare(embeddings).numpy(), np.float32)
    kind = faiss.IndexFlatIP if score.kind == "dot" else faiss.IndexFlatL2
    index = kind(rows.shape[1])
    index.add(rows)
    return index, rows


def search_folder(model: Model, folder: EmbeddedFolder, most: int, nearest: int) -> list[Query]:
    """Return query images with their nearest neighbours by the trial's retrieval score.

    Args:
        most: largest number of query images; they are evenly spaced in the folder.
        nearest: number of neighbours of each.
    """
    embeddings, classes, paths = folder.embeddings, folder.classes, folder.paths
    count = min(nearest, len(paths) - 1)
    spread = np.linspace(0, len(paths) - 1, min(most, len(paths))).round().astype(int)
    indexed = build_index(model, embeddings)
    queries = []
    for rows in torch.split(torch.from_numpy(np.unique(spread)), QUERIES):
        if indexed is not None:
            import faiss

            index, prepared = indexed
            scores, neighbours = index.search(prepared[rows.numpy()], count + 1)
            if index.metric_type == faiss.METRIC_L2:
                scores = -scores
        else:
            blocks = torch.split(embeddings, REFERENCES)
            parts = [model.score(embeddings[rows], block) for block in blocks]
            scores, neighbours = torch.cat(parts, 1).topk(count + 1)
        batch = zip(rows.tolist(), scores.tolist(), neighbours.tolist(), strict=True)
        for row, row_scores, near in batch:
            # Not itself; among copies of it, which are as near, it need not be in the list.
            pairs = zip(row_scores, near, strict=True)
            others = [(score, other) for score, other in pairs if other != row][:count]
            same = [classes[other] == classes[row] if classes else None for _, other in others]
            near_paths = [paths[other] for _, other in others]
            queries.append(Query(paths[row], near_paths, [score for score, _ in others], same))
    return queries
