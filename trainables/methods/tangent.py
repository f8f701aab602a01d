"""The exponential of a term that a bad start makes large, continued as a straight line."""

from __future__ import annotations

from torch import Tensor

# Exponents above go on as a straight line of slope e^30: the term stays finite, and so do the
# squares of its gradients that Adam keeps in float32, where e^45 would end them.
LIMIT = 30.0


def exp_with_tangent(x: Tensor) -> Tensor:
    """e^x up to x = 30, from there on the tangent e^30 (1 + x − 30)."""
    low = x.clamp(max=LIMIT)
    return low.exp() * (1 + (x - low))
