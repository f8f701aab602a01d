"""Scores of queries against references, one function per geometry; larger is closer.

Shape legend: B queries · R references · D dimensions · `...` leading dimensions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainables.losses.base import Geometry

EDGE = 3.8002011672502  # artanh 0.999
NEAR = 1e-6  # of the squared norms: below, ‖x − y‖² from a product in float64 loses nine digits
FEW = 1 / 64  # of all pairs


def score(query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
    """Map [..., B, D] × [..., R, D] → [..., B, R] by `geometry.kind`, see `Geometry`."""
    if geometry.normalize or geometry.kind == "cosine":
        query, reference = normalize_to_unit(query), normalize_to_unit(reference)
    if geometry.kind in ("cosine", "dot"):
        return query @ reference.mT
    if geometry.kind == "l2sq":
        return -squared_distance(query, reference)
    if geometry.kind == "l2":
        return -safe_sqrt(squared_distance(query, reference))
    return -hyperbolic_distance(query, reference, geometry.curvature, geometry.clip)


def to_stored_embedding(z: Tensor, geometry: Geometry) -> Tensor:
    """Map [N, D] → [N, D]: what is stored of z, with which `score` is what it is with z."""
    if geometry.normalize:
        return normalize_to_unit(z)
    return z if geometry.clip is None else clip_length(z, geometry.clip)


def normalize_to_unit(x: Tensor) -> Tensor:
    """Return x / max(‖x‖, 1e-12) over the last dimension: `F.normalize`, its kernels called
    directly."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.clamp_min(1e-12)


def squared_distance(query: Tensor, reference: Tensor) -> Tensor:
    """Return ‖q − r‖² as ‖q‖² + ‖r‖² − 2⟨q, r⟩, not below 0: a matrix product, no B × R × D tensor.

    Accepted cost: rounding of about 1e-7 (‖q‖² + ‖r‖²) in float32, so duplicates come out near
    zero and not at zero.
    """
    return _sum_squared_differences(query, reference).clamp_min(0)


def _sum_squared_differences(query: Tensor, reference: Tensor) -> Tensor:
    norms = query.square().sum(-1)[..., :, None] + reference.square().sum(-1)[..., None, :]
    return norms - 2 * (query @ reference.mT)


def safe_sqrt(squared: Tensor, floor: float = 1e-12) -> Tensor:
    """Return √x, and 0 with gradient 0 where x ≤ floor: √'s own gradient there is infinite.

    Every diagonal of a batch compared with itself is such a place, and every duplicate.
    """
    positive = squared > floor
    root = torch.where(positive, squared, torch.ones_like(squared)).sqrt()
    return torch.where(positive, root, torch.zeros_like(squared))


def clip_length(v: Tensor, limit: float) -> Tensor:
    """Return v shortened to length `limit` where it is longer."""
    length = safe_sqrt(v.square().sum(-1, keepdim=True))
    longer = length > limit
    return v * torch.where(longer, limit / torch.where(longer, length, 1), 1)


def hyperbolic_distance(
    query: Tensor, reference: Tensor, curvature: float, clip: float | None
) -> Tensor:
    """Return geodesic distance in the Poincaré ball of curvature −c, of tangent vectors at the
    origin.

    exp₀(v) = tanh(√c‖v‖) v / (√c‖v‖) (Ganea et al., "Hyperbolic neural networks", NeurIPS 2018,
    Lemma 2). With x = exp₀(q), y = exp₀(r) and 1 − c‖x‖² = 1 / cosh²(√c‖q‖), the distance

        (2/√c) artanh(√c ‖(−x) ⊕ y‖)  =  (2/√c) arsinh(√c ‖x − y‖ cosh(√c‖q‖) cosh(√c‖r‖)),

    of which the right-hand form has no singularity at the edge of the ball. Tangent vectors longer
    than EDGE / √c are shortened to it, which keeps x within 0.999 of the ball's radius, as
    HypViT's code does; its clipping at r = 2.3 is far below.

    Exact near zero, on any processor: ‖x − y‖ is that of entries subtracted, see `separation`, and
    all is computed in float64, because x and y rounded to float32 would differ by as much as two
    points that are nearly one. Equal rows: distance 0, gradient 0.

    Shapes: [..., B, D] × [..., R, D] → [..., B, R], of the type of `query`.
    """
    root = math.sqrt(curvature)
    x, stretch_x = _map_into_ball(query.double(), root, clip)
    y, stretch_y = _map_into_ball(reference.double(), root, clip)
    distance = 2 / root * torch.asinh(euclidean_separation(x, y) * stretch_x * stretch_y.mT)
    return distance.to(query.dtype)


def euclidean_separation(x: Tensor, y: Tensor) -> Tensor:
    """Map ‖x − y‖ of float64 rows [..., B, D] × [..., R, D] → [..., B, R], to 1e-9 of itself.

    Entries are subtracted: ‖x‖² + ‖y‖² − 2⟨x, y⟩ would, in float32, put 4e-4 of a point's norm
    between the point and itself. The gradient is the product's, whose error is 1e-16 over the
    distance, so that no B × R × D tensor is needed; 0 between equal rows. In retrieval, whose rows
    are many, the product is taken, and the few pairs that come out near are subtracted after all.
    """
    if torch.is_grad_enabled() or x.dim() > 2 or y.dim() > 2:
        exact = subtract_and_norm(x.detach(), y.detach()).square()
        product = _sum_squared_differences(x, y)
        return safe_sqrt(exact + (product - product.detach()), floor=0.0)
    squared = squared_distance(x, y)
    near = (squared <= NEAR * (_largest_norm(x) + _largest_norm(y))).nonzero()
    if len(near) > FEW * squared.numel():
        return subtract_and_norm(x, y)
    apart = squared.sqrt()
    for rows, columns in (part.unbind(1) for part in torch.split(near, 2**16)):
        apart[rows, columns] = torch.linalg.vector_norm(x[rows] - y[columns], dim=-1)
    return apart


def subtract_and_norm(x: Tensor, y: Tensor) -> Tensor:
    """Return ‖x − y‖, entry by entry."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _largest_norm(x: Tensor) -> Tensor:
    return x.square().sum(-1).amax()


def _map_into_ball(v: Tensor, root: float, clip: float | None) -> tuple[Tensor, Tensor]:
    """Return √c exp₀(v) [..., N, D], in the unit ball, and cosh(√c‖v‖) [..., N, 1]."""
    v = clip_length(root * (v if clip is None else clip_length(v, clip)), EDGE)
    length = safe_sqrt(v.square().sum(-1, keepdim=True), floor=0.0)
    apart = length > 0
    ratio = torch.where(apart, length.tanh() / torch.where(apart, length, 1), 1)
    return v * ratio, length.cosh()
