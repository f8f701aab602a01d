"""Ranking metrics: Recall@k, R-Precision, MAP@R, mAP and mAP@k, and the accuracy of a classifier.

Ranking metrics are computed from the places of positives among all items, top-k accuracy from the
place of the item's class among all classes (closed set: CIFAR, ImageNet). R is the number of
positives of a query: the other items of its class, or those in the gallery.

Shape legend: B queries of a block · P most positives of a query in it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.evaluation.metric import METRIC_REGISTRY, Metric, metric
from trainables.words.errors import ConfigError, TrialFailure

FAR = 2**62
ALL_PLACES = FAR - 1  # for metrics of the whole ranking


@dataclass(frozen=True)
class PositiveRanks:
    """Hold the places of the positives of a block of queries among all items.

    Attributes:
        places: [B, P] int64, 1-based and ascending; the item at place k is the k-th nearest. `FAR`
            fills places beyond the searched depth and rows with fewer than P positives. P may be 0.
        positives: [B] int64, the number of all positives (R of R-Precision).
        classes: [B] int64, the queries' labels.
    """

    places: Tensor
    positives: Tensor
    classes: Tensor


class RankingMetric:
    """Define a metric that is averaged over queries.

    By default it depends on the R nearest items, and queries with R = 0 do not count.
    """

    def depth(self, positives: Tensor) -> Tensor:
        """Return how many nearest items the metric needs [B], for R = `positives` [B]."""
        return positives

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        """Return values [B] float64, and whether each query counts, [B] bool."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecallAt(RankingMetric):
    """Compute Recall@k: 1 if any of the k nearest items is of the query's class.

    All queries count; those whose class has no other image score 0.
    """

    k: int

    def depth(self, positives: Tensor) -> Tensor:
        return torch.full_like(positives, self.k)

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        # The nearest positive decides; without any positive there is no column and no hit.
        hit = (ranks.places[:, :1] <= self.k).any(1)
        return hit.double(), torch.ones_like(hit)


class RPrecision(RankingMetric):
    """Compute R-Precision, the share of positives among the R nearest items.

    Musgrave et al., "A metric learning reality check", ECCV 2020. https://arxiv.org/abs/2003.08505
    """

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        within = (ranks.places <= ranks.positives[:, None]).sum(1)
        return within / ranks.positives.clamp(min=1).double(), ranks.positives > 0


class MapAtR(RankingMetric):
    """Compute MAP@R = 1/R · Σ_{i ≤ R} P(i)·rel(i), where P(i) is the precision at i.

    Musgrave et al., "A metric learning reality check", ECCV 2020. https://arxiv.org/abs/2003.08505
    """

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        total = sum_precisions(ranks.places, ranks.positives[:, None])
        return total / ranks.positives.clamp(min=1).double(), ranks.positives > 0


@dataclass(frozen=True)
class MapAt(RankingMetric):
    """Compute mAP@k = 1/m · Σ_{i ≤ k} P(i)·rel(i); k is 1000 in NIR's tables.

    Queries with R = 0 do not count; the public code behind those tables gives them 0.

    Attributes:
        k: number of nearest items; `ALL_PLACES` for the mAP of the whole ranking.
        with_query: whether m is R + 1, the class size with the query, as in that public code, so
            that mAP is at most R/(R + 1). Else m = min(k, R), and mAP is at most 1.
    """

    k: int
    with_query: bool

    def depth(self, positives: Tensor) -> Tensor:
        return torch.full_like(positives, self.k)

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        m = ranks.positives + 1 if self.with_query else ranks.positives.clamp(1, self.k)
        return sum_precisions(ranks.places, self.k) / m.double(), ranks.positives > 0


class MapWithQuery(RankingMetric):
    """Compute the mAP of the whole ranking with the query itself as the first hit.

    AP = 1/(R + 1) · (1 + Σ_i (i + 1)/(k_i + 1)), where k_i is the place of the i-th positive among
    the other items. The public code of GPR1200 (Schall et al., MMM 2022) computes the same.
    https://arxiv.org/abs/2111.13122
    """

    def depth(self, positives: Tensor) -> Tensor:
        return torch.full_like(positives, ALL_PLACES)

    def __call__(self, ranks: PositiveRanks) -> tuple[Tensor, Tensor]:
        with_query = torch.nn.functional.pad(ranks.places + 1, (1, 0), value=1)
        value = sum_precisions(with_query, ALL_PLACES) / (ranks.positives + 1).double()
        return value, torch.ones_like(value, dtype=torch.bool)


def sum_precisions(places: Tensor, last: Tensor | int) -> Tensor:
    """Sum the precisions i/place at each i-th positive up to place `last`: [B] float64."""
    order = torch.arange(1, places.shape[1] + 1, device=places.device)
    return torch.where(places <= last, order / places.double(), 0.0).sum(1)


_RANKING: dict[str, RankingMetric] = {
    **{f"recall_at_{k}": RecallAt(k) for k in (1, 2, 4, 8, 10, 100, 1000)},
    "r_precision": RPrecision(),
    "map_at_r": MapAtR(),
    "map_at_1000": MapAt(1000, with_query=True),
    "map_at_1000_of_found": MapAt(1000, with_query=False),
    "map_at_100_of_found": MapAt(100, with_query=False),  # that of Google Landmarks v2
    "map": MapAt(ALL_PLACES, with_query=False),
    "map_with_query": MapWithQuery(),
}
for _name, _metric in _RANKING.items():
    METRIC_REGISTRY.register(_name)(Metric(_name, _metric, "places"))


def top_k_accuracy(logits: Tensor, labels: Tensor, k: int) -> float:
    """Return the share of items whose class is among the k classes of largest logit.

    Of equal logits the first class ranks first. The share is 1 if k is at least C.

    Args:
        logits: [N, C], larger is more likely.
        labels: [N] int64, columns of `logits`.
        k: number of top classes among which the item's class must be.
    """
    classes = logits.shape[1]
    if len(logits) != len(labels) or len(labels) == 0:
        raise ConfigError(
            "logits",
            f"there are {len(logits)} rows of logits and {len(labels)} labels",
            "Give one label for each row, and one row or more",
        )
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        raise ConfigError(
            "labels",
            f"labels go from {lowest} to {highest}, and the logits have {classes} columns",
            "Give for each item the column of its class",
        )
    if torch.isnan(logits).any():
        raise TrialFailure("evaluation: a logit is not a number")
    target = logits.gather(1, labels[:, None])
    column = torch.arange(classes, device=logits.device)
    ranks_above = (logits > target) | ((logits == target) & (column < labels[:, None]))
    return float((ranks_above.sum(1) < k).double().mean())


@metric("top_1_accuracy", reads="logits")
def top_1_accuracy(logits: Tensor, labels: Tensor) -> float:
    return top_k_accuracy(logits, labels, 1)


@metric("top_5_accuracy", reads="logits")
def top_5_accuracy(logits: Tensor, labels: Tensor) -> float:
    return top_k_accuracy(logits, labels, 5)
