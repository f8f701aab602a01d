"""Scores of queries against references, one function per geometry; larger is closer.

Shape legend: B queries · R references · D dimensions · `...` leading dimensions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.losses.base import Geometry

EDGE = 3.8002011672502  # artanh 0.999


def score(query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
    """[..., B, D] × [..., R, D] → [..., B, R] by `geometry.kind`, see `Geometry`."""
    if geometry.normalize or geometry.kind == "cosine":
        query, reference = F.normalize(query, dim=-1), F.normalize(reference, dim=-1)
    if geometry.kind in ("cosine", "dot"):
        return query @ reference.mT
    if geometry.kind == "l2sq":
        return -squared_distance(query, reference)
    if geometry.kind == "l2":
        return -safe_sqrt(squared_distance(query, reference))
    return -hyperbolic_distance(query, reference, geometry.curvature, geometry.clip)


def embedding(z: Tensor, geometry: Geometry) -> Tensor:
    """[N, D] → [N, D]: what is stored of z, with which `score` is what it is with z."""
    if geometry.normalize:
        return F.normalize(z, dim=-1)
    return z if geometry.clip is None else clipped(z, geometry.clip)


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


def clipped(v: Tensor, limit: float) -> Tensor:
    """v, shortened to length `limit` where it is longer."""
    length = safe_sqrt(v.square().sum(-1, keepdim=True))
    longer = length > limit
    return v * torch.where(longer, limit / torch.where(longer, length, 1), 1)


def hyperbolic_distance(
    query: Tensor, reference: Tensor, curvature: float, clip: float | None
) -> Tensor:
    """Geodesic distance in the Poincaré ball of curvature −c, of tangent vectors at the origin.

    exp₀(v) = tanh(√c‖v‖) v / (√c‖v‖) (Ganea et al., "Hyperbolic neural networks", NeurIPS 2018,
    Lemma 2). With x = exp₀(q), y = exp₀(r) and 1 − c‖x‖² = 1 / cosh²(√c‖q‖), the distance

        (2/√c) artanh(√c ‖(−x) ⊕ y‖)  =  (2/√c) arsinh(√c ‖x − y‖ cosh(√c‖q‖) cosh(√c‖r‖)),

    of which the right-hand form has no singularity at the edge of the ball. Tangent vectors longer
    than EDGE / √c are shortened to it, which keeps x within 0.999 of the ball's radius, as
    HypViT's code does; its clipping at r = 2.3 is far below.

    Exact near zero, on any processor: x − y is subtracted entry by entry, not expanded to
    ‖x‖² + ‖y‖² − 2⟨x, y⟩, whose rounding is 2.5e-3 of distance between a point and itself in
    float32; and all is computed in float64, because x and y rounded to float32 would differ by
    as much as two points that are nearly one. Equal rows: distance 0, gradient 0.

    Shapes: [..., B, D] × [..., R, D] → [..., B, R], of the type of `query`. No B × R × D tensor
    but in the backward pass on a GPU.
    """
    root = math.sqrt(curvature)
    x, stretch_x = _into_ball(query.double(), root, clip)
    y, stretch_y = _into_ball(reference.double(), root, clip)
    apart = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    distance = 2 / root * torch.asinh(apart * stretch_x * stretch_y.mT)
    return distance.to(query.dtype)


def _into_ball(v: Tensor, root: float, clip: float | None) -> tuple[Tensor, Tensor]:
    """√c exp₀(v) [..., N, D], in the unit ball, and cosh(√c‖v‖) [..., N, 1]."""
    v = clipped(root * (v if clip is None else clipped(v, clip)), EDGE)
    length = safe_sqrt(v.square().sum(-1, keepdim=True), floor=0.0)
    apart = length > 0
    ratio = torch.where(apart, length.tanh() / torch.where(apart, length, 1), 1)
    return v * ratio, length.cosh()
