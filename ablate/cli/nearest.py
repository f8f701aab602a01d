"""The nearest pictures of a folder, by the score that a model was evaluated with.

faiss searches exactly where that is ⟨q, r⟩ or −‖q − r‖²; else all pairs are scored by the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ablate.cli.gallery import Query
from ablate.cli.pictures import Unread, class_names, embedded
from trainables.errors import ConfigError
from trainables.evaluation.scores import PlainScore

if TYPE_CHECKING:
    from trainables.core.export import Model


QUERIES, REFERENCES = 64, 4096  # compared at once


@dataclass(frozen=True)
class Embedded:
    """What could be read of a folder. embeddings: [N, E]. classes: [N], or None."""

    root: Path
    paths: list[Path]
    embeddings: Tensor
    classes: list[str] | None


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


def read_folder(model: Model, root: Path, paths: Sequence[Path], unread: Unread) -> Embedded:
    rows: list[int] = []
    blocks = []
    for some, block in embedded(model, root, paths, unread):
        rows += some
        blocks.append(block)
    if not blocks:
        raise unread.all_of(root)
    kept = [paths[row] for row in rows]
    return Embedded(root, kept, torch.cat(blocks), class_names(kept))


def _spread(found: Embedded, most: int) -> list[int]:
    """Return so many rows at most, evenly spaced, in order."""
    count = len(found.paths)
    places = np.linspace(0, count - 1, min(most, count)).round().astype(int)
    return list(dict.fromkeys(places.tolist()))


def search_folder(model: Model, found: Embedded, most: int, nearest: int) -> list[Query]:
    """Return pictures, each with its nearest others by the score that the trial was evaluated with.

    Args:
        most: pictures to look for, evenly spaced in the folder. nearest: others of each.
    """
    count, queries = min(nearest, len(found.paths) - 1), []
    for row, scores, near in _nearest(model, found.embeddings, _spread(found, most), count):
        own = None if found.classes is None else found.classes[row]
        same = [None if found.classes is None else found.classes[other] == own for other in near]
        queries.append(Query(found.paths[row], [found.paths[n] for n in near], scores, same))
    return queries


def _nearest(
    model: Model, embeddings: Tensor, chosen: Sequence[int], count: int
) -> Iterator[tuple[int, list[float], list[int]]]:
    """Each chosen row, and score and row of its nearest `count` others, nearest first.

    faiss searches where the model's score is one of its own; else all pairs are scored here.
    """
    index = make_index(model, embeddings.shape[1])
    if index is not None:
        index.add(embeddings)
    for start in range(0, len(chosen), QUERIES):
        rows = torch.tensor(chosen[start : start + QUERIES])
        if index is not None:
            values, places = index.search(embeddings[rows], count + 1)
        else:
            parts = [
                model.score(embeddings[rows], references)
                for references in torch.split(embeddings, REFERENCES)
            ]
            values, places = torch.cat(parts, 1).topk(count + 1)
        for row, scores, near in zip(rows.tolist(), values.tolist(), places.tolist(), strict=True):
            # Not itself; among copies of it, which are as near, it need not be found.
            others = [pair for pair in zip(scores, near, strict=True) if pair[1] != row][:count]
            yield row, [score for score, _ in others], [other for _, other in others]
