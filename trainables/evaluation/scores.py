"""The plain scores: dot product, cosine and Euclidean distance.

A method may score by any callable (q[B, E], r[R, E]) → [B, R]. The plain scores are symmetric and
need one matrix product, so that half of it suffices if every item queries all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.errors import ConfigError, TrialFailure
from trainables.machine.kernels import onednn_product, uses_onednn

Score = Callable[[Tensor, Tensor], Tensor]
Kind = Literal["dot", "euclidean"]


def compute_dot_products(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return ⟨a, b⟩ [A, B] of rows, by the faster of oneDNN and torch; into `out` if given."""
    if uses_onednn(a, b):
        product = onednn_product(a, b)
        return product if out is None else out.copy_(product)
    return torch.mm(a, b.T, out=out)


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
        """Return the rows [N, E] in float32, normalised if needed, as `score_tile` takes them."""
        rows = rows.float()
        return F.normalize(rows, dim=1) if self.normalize else rows

    def compute_squares(self, prepared: Tensor) -> Tensor:
        """Return the squared norms [N] of prepared rows.

        Raises:
            TrialFailure: a norm is so large that a score could overflow float32.
        """
        squares: Tensor = torch.linalg.vecdot(prepared, prepared)
        if not torch.isfinite(4 * squares).all():
            raise TrialFailure("evaluation: a similarity score is not a number (float32 overflows)")
        return squares

    def score_tile(
        self, a: Tensor, b: Tensor, squares_a: Tensor, squares_b: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Return the scores [A, B] of prepared rows and squared norms; into `out` if given."""
        tile = compute_dot_products(a, b, out)
        if self.kind == "euclidean":
            tile.mul_(2).sub_(squares_a[:, None]).sub_(squares_b[None]).clamp_(max=0)
        return tile

    def __call__(self, query: Tensor, reference: Tensor) -> Tensor:
        q, r = self.prepare(query), self.prepare(reference)
        if self.kind == "dot":
            return compute_dot_products(q, r)
        return self.score_tile(q, r, torch.linalg.vecdot(q, q), torch.linalg.vecdot(r, r))


PLAIN: Mapping[str, PlainScore] = {
    "cosine": PlainScore("dot", normalize=True),
    "dot": PlainScore("dot"),
    "euclidean": PlainScore("euclidean"),
}


def resolve_score(score: Score | str) -> Score:
    """Return the plain score of a name; return a callable unchanged."""
    if isinstance(score, str):
        if score not in PLAIN:
            fault = f"{score!r} is not a score: take one of {', '.join(PLAIN)}, or a callable"
            raise ConfigError("score", fault)
        return PLAIN[score]
    return score
