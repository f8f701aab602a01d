"""NIR's terms as loops over Eq. 10 and 11 of the paper, in float64; see `losses.py` for the manner.

A flow is given as its map alone: its log-determinant is that of autograd's Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.oracles.losses import cosine

Map = Callable[[Tensor, Tensor], Tensor]  # one ψ[D] and one ρ[D] → u[D]


def unit(x: Tensor) -> Tensor:
    total = x.new_zeros(())
    for value in x:
        total = total + value * value
    return x / total.sqrt()


def nll(psi: Tensor, rho: Tensor, residual: Map, half: float) -> Tensor:
    """half · ‖u‖² − log|det ∂u/∂ψ| of one sample; half is 1 in Eq. 10, ½ in the public code."""
    u = residual(psi, rho)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: residual(x, rho), psi, create_graph=True
    )
    squares = psi.new_zeros(())
    for value in u:
        squares = squares + value * value
    return half * squares - torch.log(torch.abs(torch.det(jacobian)))


def grown(x: Tensor, f: str) -> Tensor:
    return torch.exp(x) if f == "exp" else torch.log(1 + torch.exp(x))


def regulariser(nlls: list[Tensor], reading: str, f: str, factor: float) -> Tensor:
    """f of the mean, as printed, or the mean of f, as the public code has it."""
    if reading == "paper":
        return grown(factor * sum(nlls) / len(nlls), f)  # type: ignore[operator,return-value]
    return sum(grown(factor * x, f) for x in nlls) / len(nlls)  # type: ignore[return-value]


def nearest(psi: Tensor, centres: list[Tensor]) -> Tensor:
    """The centre of largest cosine, of unit length."""
    best, found = None, None
    for centre in centres:
        closeness = cosine(psi, centre).item()
        if best is None or closeness > best:
            best, found = closeness, centre
    assert found is not None
    return unit(found)


def mean(centres: list[Tensor]) -> Tensor:
    """The mean of the centres brought to unit length, and again of unit length."""
    total = torch.zeros_like(centres[0])
    for centre in centres:
        total = total + unit(centre)
    return unit(total / len(centres))
