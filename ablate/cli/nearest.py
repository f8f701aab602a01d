"""The nearest pictures of a folder, by the score that a model was evaluated with.

faiss searches exactly where that is ⟨q, r⟩ or −‖q − r‖²; else all pairs are scored by the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ablate.cli.gallery import Query
from ablate.cli.pictures import EmbeddedFolder
from trainables.evaluation.scores import PlainScore

if TYPE_CHECKING:
    from trainables.core.export import Model


QUERIES, REFERENCES = 64, 4096  # compared at once


class Index:
    """A flat faiss index: every pair is compared, as in the trial's evaluation.

    "dot" makes an `IndexFlatIP`, "euclidean" an `IndexFlatL2`; rows are brought to unit length
    first where the model compares by the cosine. Row i of the index is the i-th row added.
    """

    def __init__(self, score: PlainScore, width: int) -> None:
        import faiss

        self.score = score
        self.faiss: Any = (
            faiss.IndexFlatIP(width) if score.kind == "dot" else faiss.IndexFlatL2(width)
        )

    def add(self, embeddings: Tensor) -> None:
        """Append embeddings [B, E], float32 on the CPU."""
        self.faiss.add(self._rows(embeddings))

    def search(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return scores and rows [B, count] of the nearest, largest score first; count ≤ rows."""
        distances, rows = self.faiss.search(self._rows(queries), count)
        scores = torch.from_numpy(distances)
        return scores if self.score.kind == "dot" else -scores, torch.from_numpy(rows)

    def write(self, path: Path) -> None:
        """Write it for `faiss.read_index`. Raises OSError."""
        import faiss

        path.write_bytes(faiss.serialize_index(self.faiss).tobytes())

    def _rows(self, embeddings: Tensor) -> np.ndarray:
        return np.ascontiguousarray(self.score.prepare(embeddings).numpy(), np.float32)


def make_index(model: Model, width: int) -> Index | None:
    """Return an empty index for a model's embeddings.

    Returns:
        None where the model compares by a score of its own (`method.idml.test_metric:
        introspective`, hyperbolic losses), or where faiss is not installed.
    """
    score = model.network.retrieval_score()
    if not isinstance(score, PlainScore):
        return None
    try:
        return Index(score, width)
    except ImportError:
        return None


def search_folder(model: Model, folder: EmbeddedFolder, most: int, nearest: int) -> list[Query]:
    """Return pictures, each with its nearest others by the score that the trial was evaluated with.

    Args:
        most: pictures to look for, evenly spaced in the folder. nearest: others of each.
    """
    embeddings, classes = folder.embeddings, folder.classes
    size = len(folder.paths)
    count = min(nearest, size - 1)
    spread = np.unique(np.linspace(0, size - 1, min(most, size)).round().astype(int))
    index = make_index(model, embeddings.shape[1])
    if index is not None:
        index.add(embeddings)
    queries = []
    for rows in torch.split(torch.from_numpy(spread), QUERIES):
        if index is not None:
            scores, neighbours = index.search(embeddings[rows], count + 1)
        else:
            parts = [
                model.score(embeddings[rows], references)
                for references in torch.split(embeddings, REFERENCES)
            ]
            scores, neighbours = torch.cat(parts, 1).topk(count + 1)
        for row, row_scores, near in zip(
            rows.tolist(), scores.tolist(), neighbours.tolist(), strict=True
        ):
            # Not itself; among copies of it, which are as near, it need not be in the list.
            pairs = zip(row_scores, near, strict=True)
            others = [(score, other) for score, other in pairs if other != row][:count]
            queries.append(
                Query(
                    folder.paths[row],
                    [folder.paths[other] for _, other in others],
                    [score for score, _ in others],
                    [classes[other] == classes[row] if classes else None for _, other in others],
                )
            )
    return queries
