"""Record, and limit, the gradients that two paths of a method send back to one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GradientLimiter:
    """Split a computation after x into a main path and a branch with a bounded gradient.

    `backward` scales all gradients of the branch, with respect to x and to its other tensors, by
    one factor

        min(1, limit · ‖∂main/∂x‖ / ‖∂branch/∂x‖)

    so that the branch keeps its direction. If the main path has no gradient, nothing is scaled; a
    branch whose gradient is not finite has no direction and gives zeros.

    Args:
        limit: the largest ratio of the two norms; None: norms are only recorded.

    Attributes:
        norms: after `backward`, the norms of the gradients with respect to x that reach it, "main"
            and "branch"; and "limited", 1 if the branch was scaled down, else 0.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.norms: dict[str, Tensor] = {}

    def split(self, x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Return x for the main path, x for the branch, and the branch's other tensors."""
        paths: tuple[Tensor, ...] = _SplitFunction.apply(x, self, *others)
        return paths

    def scale_branch(self, main: Tensor | None, branch: list[Tensor | None]) -> list[Tensor | None]:
        """Record the norms and return the branch's gradients, scaled; the first is that of x."""
        if main is not None:
            self.norms["main"] = torch.linalg.vector_norm(main.detach())
        if branch[0] is None:
            return branch
        length = self.norms["branch"] = torch.linalg.vector_norm(branch[0].detach())
        if main is None or self.limit is None:
            return branch
        finite = length.isfinite()
        factor = (self.limit * self.norms["main"] / length).clamp(max=1)
        factor = torch.where(length > 0, factor, torch.ones_like(factor))  # not 0/0
        self.norms["branch"] = torch.where(finite, length * factor, torch.zeros_like(length))
        self.norms["limited"] = ((factor < 1) | ~finite).to(length.dtype)
        return [
            None
            if gradient is None
            else torch.where(finite, gradient * factor, torch.zeros_like(gradient))
            for gradient in branch
        ]


class _SplitFunction(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _: GradientLimiter, *others: Tensor) -> tuple[Tensor, ...]:
        return (x.view_as(x), x.view_as(x), *(other.view_as(other) for other in others))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: Any) -> None:
        ctx.limiter = inputs[1]
        ctx.set_materialize_grads(False)  # no gradient of the main path is not one of zero

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        main, *branch = gradients
        scaled, *others = ctx.limiter.scale_branch(main, branch)
        total = scaled if main is None else main if scaled is None else main + scaled
        return (total, None, *others)
