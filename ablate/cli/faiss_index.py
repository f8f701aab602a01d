"""Exact nearest-neighbour search by faiss, for models that compare by ⟨q, r⟩ or −‖q − r‖²."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trainables.errors import ConfigError
from trainables.evaluation.scores import PlainScore

if TYPE_CHECKING:
    from trainables.core.export import Model


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
        """Scores and rows [B, count] of the nearest, largest score first; count ≤ rows held."""
        found, rows = self.faiss.search(self._rows(queries), count)
        scores = torch.from_numpy(found)
        return scores if self.score.kind == "dot" else -scores, torch.from_numpy(rows)

    def write(self, path: Path) -> None:
        """Write it as faiss does; `faiss.read_index` reads it.

        Raises:
            OSError: the file cannot be written.
        """
        import faiss

        path.write_bytes(faiss.serialize_index(self.faiss).tobytes())

    def _rows(self, embeddings: Tensor) -> np.ndarray:
        return np.ascontiguousarray(self.score.prepare(embeddings).numpy(), np.float32)


def make_index(model: Model, width: int) -> Index | None:
    """An empty index for a model's embeddings.

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


def require_index(model: Model, width: int) -> Index:
    """An empty index for a model's embeddings.

    Raises:
        ConfigError: as `make_index` gives none.
    """
    index = make_index(model, width)
    if index is None:
        raise ConfigError(
            "--index",
            f"a model of {model.config.method.name} on {model.config.loss.name}",
            "one that compares by cosine, dot product or distance, and faiss-cpu installed",
            "Leave --index out; `ablate neighbours` searches by the model's own score",
        )
    return index
