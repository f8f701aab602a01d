"""The plain scores: dot product, cosine and Euclidean distance.

A method may score by any callable (q[B, E], r[R, E]) → [B, R]. The plain scores are symmetric and
need one matrix product, so that half of it suffices if every item queries all others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.words.errors import ConfigError, TrialFailure

Score = Callable[[Tensor, Tensor], Tensor]
Kind = Literal["dot", "euclidean"]


@dataclass(frozen=True)
class PlainScore:
    """Score rows by ⟨q, r⟩ ("dot") or by −‖q − r‖² ("euclidean", which orders as −‖q − r‖).

    −‖q − r‖² is computed as min(0, 2⟨q, r⟩ − ‖q‖² − ‖r‖²), rounded by about 1e-7 of the norms.

    Attributes:
        kind: "dot" or "euclidean".
        normalize: whether rows are L2-normalised first.
    """

    kind: Kind
    normalize: bool = False

    def prepare(self, rows: Tensor) -> Tensor:
        """Return rows [N, E] in float32, normalised if configured; refuse scores that overflow."""
        rows = self._convert(rows)
        if not torch.isfinite(4 * torch.linalg.vecdot(rows, rows)).all():  # 4‖row‖² bounds scores
            raise TrialFailure("evaluation: a similarity score is not a number (float32 overflows)")
        return rows

    def _convert(self, rows: Tensor) -> Tensor:
        rows = rows.float()
        return F.normalize(rows, dim=1) if self.normalize else rows

    def __call__(self, query: Tensor, reference: Tensor) -> Tensor:
        """Return the scores [B, R] of query [B, E] and reference [R, E]; larger is closer."""
        q, r = self._convert(query), self._convert(reference)
        scores = torch.mm(q, r.T)
        if self.kind == "euclidean":
            squares_q, squares_r = torch.linalg.vecdot(q, q), torch.linalg.vecdot(r, r)
            scores.mul_(2).sub_(squares_q[:, None]).sub_(squares_r[None]).clamp_(max=0)
        return scores


PLAIN: Mapping[str, PlainScore] = {
    "cosine": PlainScore("dot", normalize=True),
    "dot": PlainScore("dot"),
    "euclidean": PlainScore("euclidean"),
}


def resolve_score(score: Score | str) -> Score:
    """Return the score named "cosine", "dot" or "euclidean"; return a callable as it is."""
    if isinstance(score, str):
        if score not in PLAIN:
            raise ConfigError(
                "score",
                f"{score!r} is not a score",
                f"Take one of {', '.join(PLAIN)}, or a callable",
            )
        return PLAIN[score]
    return score
