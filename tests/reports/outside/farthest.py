"""A metric that is not ours: the largest distance of a row to its class's mean."""

from __future__ import annotations

import torch
from torch import Tensor


def farthest(rows: Tensor, labels: Tensor) -> float:
    distances = [
        (rows[labels == label] - rows[labels == label].mean(0)).norm(dim=1).max()
        for label in labels.unique()
    ]
    return float(torch.stack(distances).max())
