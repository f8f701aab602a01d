"""Record, and limit, the gradient that flows back through one branch of a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Gradients:
    """Hold gradient norms by branch; no plain dictionary, because torch would copy it."""

    def __init__(self) -> None:
        self.norms: dict[str, Tensor] = {}


def record_gradient_norm(x: Tensor, name: str, record: Gradients) -> Tensor:
    """Return x; `backward` puts the norm of its gradient into `record.norms[name]`."""
    through: Tensor = _GradientNormFunction.apply(x, name, record)
    return through


class _GradientNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, record: Gradients) -> Tensor:
        ctx.name, ctx.record = name, record
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        ctx.record.norms[ctx.name] = torch.linalg.vector_norm(gradient.detach())
        return gradient, None, None


class BranchNames(NamedTuple):
    """Names under which `limit_branch` records what it saw.

    main, branch: norms of the two gradients with respect to x. limited: 1 if the branch was
    scaled down, else 0.
    """

    main: str
    branch: str
    limited: str


def limit_branch(
    x: Tensor, others: Sequence[Tensor], limit: float, names: BranchNames, record: Gradients
) -> tuple[Tensor, ...]:
    """Split a computation after x into a main path and a branch with a bounded gradient.

    `backward` scales all gradients of the branch, with respect to x and to `others`, by one factor

        min(1, limit · ‖∂main/∂x‖ / ‖∂branch/∂x‖)

    so that the branch keeps its direction. If the main path has no gradient, nothing is scaled; a
    branch whose gradient is not finite has no direction and gives zeros.

    Args:
        others: further tensors that the branch depends on, parameters for example.

    Returns:
        x for the main path, x for the branch, `others` for the branch.
    """
    split: tuple[Tensor, ...] = _LimitedGradient.apply(x, _Limit(limit, names, record), *others)
    return split


class _Limit(NamedTuple):
    limit: float
    names: BranchNames
    record: Gradients

    def scale_branch(self, main: Tensor | None, branch: list[Tensor | None]) -> list[Tensor | None]:
        """Record the norms and return the branch's gradients, scaled."""
        branch_gradient, norms = branch[0], self.record.norms
        if main is not None:
            norms[self.names.main] = torch.linalg.vector_norm(main.detach())
        if branch_gradient is None:
            return branch
        length = norms[self.names.branch] = torch.linalg.vector_norm(branch_gradient.detach())
        if main is None:
            return branch
        finite = length.isfinite()
        factor = (self.limit * norms[self.names.main] / length).clamp(max=1)
        factor = torch.where(length > 0, factor, torch.ones_like(factor))  # not 0/0
        norms[self.names.branch] = torch.where(finite, length * factor, torch.zeros_like(length))
        norms[self.names.limited] = ((factor < 1) | ~finite).to(length.dtype)
        return [
            None
            if gradient is None
            else torch.where(finite, gradient * factor, torch.zeros_like(gradient))
            for gradient in branch
        ]


class _LimitedGradient(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _: _Limit, *others: Tensor) -> tuple[Tensor, ...]:
        return (x.view_as(x), x.view_as(x), *(other.view_as(other) for other in others))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: Any) -> None:
        ctx.limit = inputs[1]
        ctx.set_materialize_grads(False)  # no gradient of the metric is not one of zero

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        main, *branch = gradients
        scaled, *others = ctx.limit.scale_branch(main, branch)
        total = scaled if main is None else main if scaled is None else main + scaled
        return (total, None, *others)
