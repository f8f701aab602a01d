"""Where a query's positives stand among all items: what every ranking metric is computed from.

Shape legend: B queries of a block · P most positives of a query in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FAR = 2**62


@dataclass(frozen=True)
class Places:
    """One block of queries.

    places: [B, P] int64, 1-based, ascending: the item at place k is the k-th nearest, and this
        one is of the query's class. `FAR` where the place is beyond what was asked for, and where
        there are less than P positives. P may be 0.
    positives: [B] int64, how many there are in all (R of R-Precision).
    """

    places: Tensor
    positives: Tensor


def places_of(relevant: Tensor, positives: Tensor, most: int | None = None) -> Places:
    """From [B, K] bool, whether the k-th nearest is of the query's class.

    Args:
        most: P, not less than the most of a row; None: that.
    """
    order = relevant.cumsum(1) - 1
    query, place = torch.nonzero(relevant, as_tuple=True)
    if most is None:
        most = int(order[:, -1].max()) + 1 if relevant.numel() else 0
    places = torch.full((len(relevant), most), FAR, device=relevant.device)
    places[query, order[query, place]] = place + 1
    return Places(places, positives)
