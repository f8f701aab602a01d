"""Ranking metrics: Recall@k, R-Precision, MAP@R, mAP@1000, from the places of positives.

R is how many items of the query's class there are to find: class size − 1, or, against a gallery,
the gallery's.

Shape legend: B queries of a block · P most positives of a query in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.evaluation.metric import METRIC_REGISTRY, Metric

FAR = 2**62


@dataclass(frozen=True)
class PositiveRanks:
    """Where the positives of a block of queries stand among all items.

    places: [B, P] int64, 1-based, ascending: the item at place k is the k-th nearest, and this
        one is of the query's class. `FAR` where the place is beyond what was asked for, and where
        there are less than P positives. P may be 0.
    positives: [B] int64, how many there are in all (R of R-Precision).
    """

    places: Tensor
    positives: Tensor


class RankingMetric:
    """One metric over queries. By default it looks at the R nearest, and queries with R = 0 do not
    count."""

    def depth(self, positives: Tensor) -> Tensor:
        """Return how many nearest items it looks at [B], of queries with R = `positives` [B]."""
        return positives

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        """Return values [B] float64 and which of the queries count, [B] bool."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecallAt(RankingMetric):
    """Recall@k: 1 if any of the k nearest is of the query's class. All queries count, also
    those whose class has no other image (they score 0)."""

    k: int

    def depth(self, positives: Tensor) -> Tensor:
        return torch.full_like(positives, self.k)

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        # The first is enough; without any column it is FAR.
        hit = (ranks.places[:, :1] <= self.k).any(1)
        return hit.double(), torch.ones_like(hit)


class RPrecision(RankingMetric):
    """R-Precision: share of relevant items among the R nearest (Musgrave et al., arXiv
    2003.08505)."""

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        within = (ranks.places <= ranks.positives[:, None]).sum(1)
        return within / ranks.positives.clamp(min=1).double(), ranks.positives > 0


class MapAtR(RankingMetric):
    """MAP@R = 1/R · Σ_{i ≤ R} P(i)·rel(i), P(i) the precision among the i nearest (Musgrave et
    al.)."""

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        total = sum_precisions(ranks.places, ranks.positives[:, None])
        return total / ranks.positives.clamp(min=1).double(), ranks.positives > 0


@dataclass(frozen=True)
class MapAt(RankingMetric):
    """mAP@k = 1/m · Σ_{i ≤ k} P(i)·rel(i) (k = 1000 in NIR's tables).

    with_query: m = R + 1, the class size with the query in it, as the public code behind those
    tables divides; at most R/(R + 1) then. Else m = min(k, R), at most 1. The public code gives 0
    to queries with R = 0.
    """

    k: int
    with_query: bool

    def depth(self, positives: Tensor) -> Tensor:
        return torch.full_like(positives, self.k)

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        of = ranks.positives + 1 if self.with_query else ranks.positives.clamp(1, self.k)
        return sum_precisions(ranks.places, self.k) / of.double(), ranks.positives > 0


def sum_precisions(places: Tensor, last: Tensor | int) -> Tensor:
    """Return Σ P(place) over the places ≤ `last` [B, 1], [B] float64."""
    order = torch.arange(1, places.shape[1] + 1, device=places.device)
    return torch.where(places <= last, order / places.double(), 0.0).sum(1)


_RANKING: dict[str, RankingMetric] = {
    **{f"recall_at_{k}": RecallAt(k) for k in (1, 2, 4, 8, 10, 100, 1000)},
    "r_precision": RPrecision(),
    "map_at_r": MapAtR(),
    "map_at_1000": MapAt(1000, with_query=True),
    "map_at_1000_of_found": MapAt(1000, with_query=False),
}
for _name, _metric in _RANKING.items():
    METRIC_REGISTRY.register(_name)(Metric(_name, _metric, "places", "%"))
