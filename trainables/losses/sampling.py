"""Distance-weighted sampling: negatives drawn evenly over distances, not over items.

Shape legend: B queries · R references · D embedding dimensions · `...` leading dimensions.

On the unit sphere in D dimensions the distance d of two independent uniform points has the density

    q(d) ∝ d^(D−2) · (1 − d²/4)^((D−3)/2)

so that for large D almost all negatives are near √2. A negative is drawn with a probability
proportional to 1/q of its distance to the anchor.

References:
    Wu et al., "Sampling matters in deep embedding learning", ICCV 2017, section 4.
    https://arxiv.org/abs/1706.07567
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def inverse_density(distance: Tensor, dim: int, *, near: float, far: float) -> Tensor:
    """Return the log weights log 1/q(d) of negatives at `distance[..., B, R]`, −∞ beyond `far`.

    Args:
        distance: d.
        dim: D.
        near: smaller distances count as this one, which bounds the weights as the paper's
            min(λ, 1/q) does; 0.5 in the authors' code.
        far: negatives at this distance or more are not drawn, because their loss would be 0; 1.4
            in the authors' code. The same holds from 2 on, the diameter of the unit sphere.
    """
    d = distance.clamp_min(max(near, 1e-6))
    below_far = (d < far) & (d < 2)
    inside = torch.where(below_far, d, torch.ones_like(d))
    log_q = (dim - 2) * inside.log() + (dim - 3) / 2 * torch.log1p(-0.25 * inside.square())
    return torch.where(below_far, -log_q, torch.full_like(d, -torch.inf))


@torch.no_grad()
def draw_negatives(log_weights: Tensor, neg: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw a negative of the query for every (query, reference) pair, independently.

    P(n) ∝ neg[..., B, n] · exp(log_weights[..., B, n]). The negative at [i, p] completes the
    triplet of anchor i and positive p. If all negatives of a query have the log weight −∞, it
    draws uniformly from them (the authors' code draws from positives too). A query without
    negatives gets index 0, which the caller masks.

    The cumulative weights are inverted at B · R uniform numbers, so that no shape and no number
    of draws depends on the data.

    Returns:
        Columns of the negatives, [..., B, R].
    """
    allowed = neg > 0
    logs = torch.where(allowed, log_weights + neg.clamp_min(1e-30).log(), -torch.inf)
    top = logs.amax(-1, keepdim=True)
    reachable = top > -torch.inf
    weights = (logs - torch.where(reachable, top, torch.zeros_like(top))).exp()
    cumulated = torch.where(reachable, weights, neg.to(weights.dtype)).cumsum(-1)
    total = cumulated[..., -1:]
    u = torch.rand(
        cumulated.shape, generator=generator, device=cumulated.device, dtype=cumulated.dtype
    )
    last = (cumulated >= total).int().argmax(-1, keepdim=True)  # the last of any weight
    return torch.searchsorted(cumulated, u * total, right=True).minimum(last)
