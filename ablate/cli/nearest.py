"""The nearest pictures of a folder, by the score that a model was evaluated with.

faiss searches exactly where that is ⟨q, r⟩ or −‖q − r‖²; else all pairs are scored by the model.
"""

from __future__ import annotations

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
    """Return pictures, each with its nearest others by the score that the trial was evaluated with.

    Args:
        most: pictures to look for, evenly spaced in the folder. nearest: others of each.
    """
    embeddings, classes = folder.embeddings, folder.classes
    size = len(folder.paths)
    count = min(nearest, size - 1)
    spread = np.unique(np.linspace(0, size - 1, min(most, size)).round().astype(int))
    indexed = build_index(model, embeddings)
    queries = []
    for rows in torch.split(torch.from_numpy(spread), QUERIES):
        if indexed is not None:
            import faiss

            index, prepared = indexed
            scores, neighbours = index.search(prepared[rows.numpy()], count + 1)
            if index.metric_type == faiss.METRIC_L2:
                scores = -scores
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
