"""Ranking metrics: Recall@k, R-Precision, MAP@R (Musgrave et al., arXiv 2003.08505).

Each metric gives a value per query of a block and which queries count; `evaluate` averages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainables.evaluation.ranks import Neighbours


class RankingMetric(Protocol):
    """One metric over queries."""

    def depth(self, most_positives: int) -> int:
        """How many nearest items it looks at, where R is at most `most_positives`."""

    def __call__(self, near: Neighbours) -> tuple[Tensor, Tensor]:
        """Values [B] float64 and which of the queries count, [B] bool."""


@dataclass(frozen=True)
class RecallAt:
    """Recall@k: 1 if any of the k nearest is of the query's class. All queries count, also
    those whose class has no other image (they score 0)."""

    k: int

    def depth(self, most_positives: int) -> int:
        return self.k

    def __call__(self, near: Neighbours) -> tuple[Tensor, Tensor]:
        hit = near.relevant[:, : self.k].any(1)
        return hit.double(), torch.ones_like(hit)


@dataclass(frozen=True)
class RPrecision:
    """R-Precision: share of relevant items among the R nearest, R the number of relevant ones.
    Queries with R = 0 do not count."""

    def depth(self, most_positives: int) -> int:
        return most_positives

    def __call__(self, near: Neighbours) -> tuple[Tensor, Tensor]:
        within = _first(near)
        return within.sum(1) / near.positives.clamp(min=1).double(), near.positives > 0


@dataclass(frozen=True)
class MapAtR:
    """MAP@R = 1/R · Σ_{i ≤ R} P(i)·rel(i), P(i) the precision among the i nearest.
    Queries with R = 0 do not count."""

    def depth(self, most_positives: int) -> int:
        return most_positives

    def __call__(self, near: Neighbours) -> tuple[Tensor, Tensor]:
        within = _first(near)
        place = torch.arange(1, within.shape[1] + 1, device=within.device)
        # Hits are few: relevant places times how many are relevant up to there.
        precision = within.cumsum(1).double() / place
        total = (precision * within).sum(1)
        return total / near.positives.clamp(min=1).double(), near.positives > 0


def _first(near: Neighbours) -> Tensor:
    """Relevance cut off after each query's own R, [B, K] bool."""
    place = torch.arange(near.relevant.shape[1], device=near.relevant.device)
    return near.relevant & (place < near.positives[:, None])
