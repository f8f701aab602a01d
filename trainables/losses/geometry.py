"""Scores of queries against references, one function per geometry; larger is closer.

Shape legend: B queries · R references · D dimensions · `...` leading dimensions.
"""

import math

import torch
from torch import Tensor

from trainables.losses.base import Geometry

EDGE = 3.8002011672502  # artanh 0.999
# Below this share of the squared norms, ‖x − y‖² from a product in float64 loses nine digits.
NEAR = 1e-6
FEW = 1 / 64  # share of near pairs above which all pairs are subtracted


def score(query: Tensor, reference: Tensor, geometry: Geometry) -> Tensor:
    """Return the scores [..., B, R] of queries [..., B, D] and references; larger is closer."""
    if geometry.normalize or geometry.kind == "cosine":
        query, reference = normalize_to_unit(query), normalize_to_unit(reference)
    if geometry.kind in ("cosine", "dot"):
        return query @ reference.mT
    if geometry.kind == "l2sq":
        return -squared_distance(query, reference)
    if geometry.kind == "l2":
        return -safe_sqrt(squared_distance(query, reference))
    return -hyperbolic_distance(query, reference, geometry.curvature, geometry.clip)


def normalize_to_unit(x: Tensor) -> Tensor:
    """Return x / max(‖x‖, 1e-12) over the last dimension, as `F.normalize` with fewer kernels."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.clamp_min(1e-12)


def squared_distance(query: Tensor, reference: Tensor) -> Tensor:
    """Return ‖q − r‖² ≥ 0 as ‖q‖² + ‖r‖² − 2⟨q, r⟩, without a B × R × D tensor.

    Float32 rounds the result by about 1e-7 (‖q‖² + ‖r‖²), so duplicates are near 0, not at 0.
    """
    return _sum_squared_differences(query, reference).clamp_min(0)


def _sum_squared_differences(query: Tensor, reference: Tensor) -> Tensor:
    norms = query.square().sum(-1)[..., :, None] + reference.square().sum(-1)[..., None, :]
    return norms - 2 * (query @ reference.mT)


def safe_sqrt(squared: Tensor, floor: float = 1e-12) -> Tensor:
    """Return √x, and 0 with gradient 0 where x ≤ floor, because √ has an infinite gradient at 0.

    The squared distance of an item to itself or to a duplicate is such an x.
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
    """Return the geodesic distance, in the Poincaré ball, of tangent vectors at the origin.

    The exponential map exp₀(v) = tanh(√c‖v‖) v / (√c‖v‖) maps queries q and references r into the
    ball. With x = exp₀(q) and y = exp₀(r) the distance is

        (2/√c) artanh(√c ‖(−x) ⊕ y‖)  =  (2/√c) arsinh(√c ‖x − y‖ cosh(√c‖q‖) cosh(√c‖r‖))

    The right-hand form is computed, because it has no singularity at the edge of the ball. Tangent
    vectors longer than EDGE / √c are shortened to that length, which keeps x within 0.999 of the
    ball's radius, as in HypViT's code. The computation is in float64 and subtracts entries
    (`euclidean_separation`), because float32 would round away the difference of near points. Equal
    rows have distance 0 and gradient 0.

    Args:
        query, reference: [..., B, D] and [..., R, D]; the result is [..., B, R].
        curvature: c; the ball has curvature −c.
        clip: length to which longer tangent vectors are shortened, or None.

    References:
        Ganea et al., "Hyperbolic neural networks", NeurIPS 2018, Lemma 2.
        https://arxiv.org/abs/1805.09112
    """
    root = math.sqrt(curvature)
    x, stretch_x = _map_into_ball(query.double(), root, clip)
    y, stretch_y = _map_into_ball(reference.double(), root, clip)
    distance = 2 / root * torch.asinh(euclidean_separation(x, y) * stretch_x * stretch_y.mT)
    return distance.to(query.dtype)


def euclidean_separation(x: Tensor, y: Tensor) -> Tensor:
    """Return ‖x − y‖ of float64 rows x[..., B, D], y[..., R, D] as [..., B, R], exact to 1e-9.

    ‖x‖² + ‖y‖² − 2⟨x, y⟩, a matrix product, loses its digits between near points, so entries are
    subtracted. With gradients the value comes from subtraction and the gradient from the product,
    so that no B × R × D tensor is needed; equal rows get gradient 0. Without gradients (retrieval,
    many rows) the product gives all values, and only pairs that come out near are subtracted.
    """
    if torch.is_grad_enabled() or x.dim() > 2 or y.dim() > 2:  # no retrieval
        exact = subtract_and_norm(x.detach(), y.detach()).square()
        product = _sum_squared_differences(x, y)
        return safe_sqrt(exact + (product - product.detach()), floor=0.0)  # adds only a gradient
    squared = squared_distance(x, y)
    near = (squared <= NEAR * (_largest_norm(x) + _largest_norm(y))).nonzero()
    if len(near) > FEW * squared.numel():  # subtracting all pairs is faster
        return subtract_and_norm(x, y)
    distance = squared.sqrt()
    for rows, columns in (part.unbind(1) for part in torch.split(near, 2**16)):
        distance[rows, columns] = torch.linalg.vector_norm(x[rows] - y[columns], dim=-1)
    return distance


def subtract_and_norm(x: Tensor, y: Tensor) -> Tensor:
    """Return ‖x − y‖ for all pairs of rows by subtracting their entries."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def _largest_norm(x: Tensor) -> Tensor:
    return x.square().sum(-1).amax()


def _map_into_ball(v: Tensor, root: float, clip: float | None) -> tuple[Tensor, Tensor]:
    """Return √c exp₀(v), v mapped into the unit ball [..., N, D], and cosh(√c‖v‖); root is √c."""
    v = clip_length(root * (v if clip is None else clip_length(v, clip)), EDGE)
    length = safe_sqrt(v.square().sum(-1, keepdim=True), floor=0.0)
    nonzero = length > 0
    ratio = torch.where(nonzero, length.tanh() / torch.where(nonzero, length, 1), 1)
    return v * ratio, length.cosh()
