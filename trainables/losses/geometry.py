"""Scores of queries against references, one function per geometry; larger is closer.

Shape legend: B queries · R references · D dimensions · `...` leading dimensions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.errors import ConfigError
from trainables.losses.base import Geometry


def score(query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
    """[..., B, D] × [..., R, D] → [..., B, R] by `geometry.kind`, see `Geometry`.

    Raises:
        ConfigError: for the hyperbolic kind, whose map into the ball belongs to the loss that
            brings it and which no loss here uses.
    """
    if geometry.normalize or geometry.kind == "cosine":
        query, reference = F.normalize(query, dim=-1), F.normalize(reference, dim=-1)
    if geometry.kind in ("cosine", "dot"):
        return query @ reference.mT
    if geometry.kind == "l2sq":
        return -squared_distance(query, reference)
    if geometry.kind == "l2":
        return -safe_sqrt(squared_distance(query, reference))
    raise ConfigError(
        "loss.geometry",
        repr(geometry.kind),
        "one of cosine, dot, l2, l2sq",
        "Give a loss with another geometry its own Method.score",
    )


def squared_distance(query: Tensor, reference: Tensor) -> Tensor:
    """‖q − r‖² as ‖q‖² + ‖r‖² − 2⟨q, r⟩, not below 0: a matrix product, no B × R × D tensor.

    Accepted cost: rounding of about 1e-7 (‖q‖² + ‖r‖²) in float32, so duplicates come out near
    zero and not at zero.
    """
    norms = query.square().sum(-1)[..., :, None] + reference.square().sum(-1)[..., None, :]
    return (norms - 2 * (query @ reference.mT)).clamp_min(0)


def safe_sqrt(squared: Tensor, floor: float = 1e-12) -> Tensor:
    """√x, and 0 with gradient 0 where x ≤ floor: √'s own gradient there is infinite.

    Every diagonal of a batch compared with itself is such a place, and every duplicate.
    """
    positive = squared > floor
    root = torch.where(positive, squared, torch.ones_like(squared)).sqrt()
    return torch.where(positive, root, torch.zeros_like(squared))
