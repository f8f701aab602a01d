"""The plain scores: what blocks of products give, the same for a pair either way round.

A method's own score is any callable (q[B, E], r[R, E]) → [B, R]. One of these three tells more:
it is symmetric and needs one matrix product, so with query = gallery half of it suffices.
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
    """Return ⟨a, b⟩ [A, B] of rows by the quicker library; into `out` if given."""
    if uses_onednn(a, b):
        product = onednn_product(a, b)
        return product if out is None else out.copy_(product)
    return torch.mm(a, b.T, out=out)


@dataclass(frozen=True)
class PlainScore:
    """⟨q, r⟩ ("dot") or −‖q − r‖² ("euclidean", which orders as −‖q − r‖), of rows brought to
    unit length first if `normalize`.

    −‖q − r‖² is taken as 2⟨q, r⟩ − ‖q‖² − ‖r‖², not above 0: rounding of about 1e-7 of the norms.
    """

    kind: Kind
    normalize: bool = False

    def prepare(self, rows: Tensor) -> Tensor:
        """Return [N, E] float32 as `tile` takes them."""
        rows = rows.float()
        return F.normalize(rows, dim=1) if self.normalize else rows

    def compute_squares(self, prepared: Tensor) -> Tensor:
        """Return ‖·‖² [N]. None is too large for float32, so by Cauchy–Schwarz all scores are
        numbers."""
        squares: Tensor = torch.linalg.vecdot(prepared, prepared)
        if not torch.isfinite(4 * squares).all():
            raise TrialFailure("evaluation: a similarity score is not a number (float32 overflows)")
        return squares

    def score_tile(
        self, a: Tensor, b: Tensor, of_a: Tensor, of_b: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Return scores [A, B] of prepared rows, `of_a` and `of_b` their squares; into `out` if
        given."""
        tile = compute_dot_products(a, b, out)
        if self.kind == "euclidean":
            tile.mul_(2).sub_(of_a[:, None]).sub_(of_b[None]).clamp_(max=0)
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
    """Return a plain score by name; a callable as it is."""
    if isinstance(score, str):
        if score not in PLAIN:
            fault = f"{score!r} is no score: take one of {', '.join(PLAIN)}, or a callable"
            raise ConfigError("score", fault)
        return PLAIN[score]
    return score
