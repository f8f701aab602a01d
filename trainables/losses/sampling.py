"""Distance-weighted sampling: negatives drawn evenly over distances, not over items.

Shape legend: B queries · R references · D embedding dimensions · `...` leading dimensions.

Wu et al., "Sampling matters in deep embedding learning", ICCV 2017, section 4. On the unit sphere
in D dimensions the distance d of two independent uniform points has the density

    q(d) ∝ d^(D−2) · (1 − d²/4)^((D−3)/2)

so that for large D almost all negatives lie near √2. A negative is drawn with a probability
proportional to 1/q of its distance to the anchor.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def inverse_density(distance: Tensor, dim: int, *, near: float, far: float) -> Tensor:
    """Return log 1/q(d) of `distance[..., B, R]`; −∞ from `far` on.

    near: distances below count as this one, which bounds the weights: the min(λ, 1/q) of the
        paper; 0.5 in the authors' code.
    far: negatives this far away are not drawn, for no loss would come of them; 1.4 in the
        authors' code. Distances of 2 and more, which the unit sphere does not have, are as far.
    """
    d = distance.clamp_min(max(near, 1e-6))
    below_far = (d < far) & (d < 2)
    inside = torch.where(below_far, d, torch.ones_like(d))
    log_q = (dim - 2) * inside.log() + (dim - 3) / 2 * torch.log1p(-0.25 * inside.square())
    return torch.where(below_far, -log_q, torch.full_like(d, -torch.inf))


@torch.no_grad()
def draw_negatives(log_weights: Tensor, neg: Tensor, generator: Generator | None = None) -> Tensor:
    """For every pair (query, reference) one negative of the query: indices [..., B, R].

    P(n) ∝ neg[..., B, n] · exp(log_weights[..., B, n]), independently for every pair: the
    negative at [i, p] is what goes with positive p of anchor i. A query of which all negatives
    have the log weight −∞ draws from all of them alike, as in the authors' code (which there
    draws from positives too). A query without negatives gets index 0, to be masked by the caller.

    By the inverse of the cumulated weights at B · R uniform numbers, which are drawn whatever
    the weights are; no shape and no number of draws depends on the data.
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
