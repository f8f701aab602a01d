"""The gradient that comes back through one branch of a method, watched on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Gradients:
    """What came back, by branch. No dictionary itself: torch would copy that."""

    def __init__(self) -> None:
        self.norms: dict[str, Tensor] = {}


def watched(x: Tensor, name: str, found: Gradients) -> Tensor:
    """x; `backward` puts the norm of its gradient into `found.norms[name]`.

    Of many configurations at once (`torch.func.vmap`) it is the norm of each, [S].
    """
    through: Tensor = _Watched.apply(x, _Place(name, found, many=False))
    return through


class _Place:
    """Where a norm goes. many: whether the first dimension is one of configurations."""

    def __init__(self, name: str, found: Gradients, *, many: bool) -> None:
        self.name, self.found, self.many = name, found, many

    def note(self, gradient: Tensor) -> None:
        dims = tuple(range(1, gradient.dim())) if self.many else None
        self.found.norms[self.name] = torch.linalg.vector_norm(gradient.detach(), dim=dims)


class _Watched(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _: _Place) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, _Place], _: Tensor) -> None:
        ctx.place = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        ctx.place.note(gradient)
        return gradient, None

    @staticmethod
    def vmap(_: Any, in_dims: tuple[Any, ...], x: Tensor, place: _Place) -> tuple[Tensor, int]:
        each = _Place(place.name, place.found, many=True)
        return _Watched.apply(x.movedim(in_dims[0], 0), each), 0


class BranchNames(NamedTuple):
    """Names under which `limit_branch` records what it saw.

    main, branch: norms of the two gradients with respect to x. limited: 1 if the branch was
    scaled down, else 0.
    """

    main: str
    branch: str
    limited: str


def limit_branch(
    x: Tensor, others: Sequence[Tensor], limit: float, names: BranchNames, found: Gradients
) -> tuple[Tensor, ...]:
    """Split a computation after x into a main path and a branch with a bounded gradient.

    `backward` scales all gradients of the branch, with respect to x and to `others`, by one factor

        min(1, limit · ‖∂main/∂x‖ / ‖∂branch/∂x‖)

    so that the branch keeps its direction. If the main path has no gradient, nothing is scaled; a
    branch whose gradient is not finite has no direction and gives zeros. Of many configurations at
    once (`torch.func.vmap`) each has its own factor.

    Args:
        others: further tensors that the branch depends on, parameters for example.

    Returns:
        x for the main path, x for the branch, `others` for the branch.
    """
    record = _Limit(limit, names, found, many=False)
    split: tuple[Tensor, ...] = _Limited.apply(x, record, *others)
    return split


class _Limit(NamedTuple):
    """many: whether the first dimension is one of configurations."""

    limit: float
    names: BranchNames
    found: Gradients
    many: bool

    def scale_branch(self, main: Tensor | None, branch: list[Tensor | None]) -> list[Tensor | None]:
        """Record the norms and return the branch's gradients, scaled."""
        own, norms = branch[0], self.found.norms
        if main is not None:
            norms[self.names.main] = self._norm(main)
        if own is None:
            return branch
        length = norms[self.names.branch] = self._norm(own)
        if main is None:
            return branch
        finite = length.isfinite()
        factor = (self.limit * norms[self.names.main] / length).clamp(max=1)
        factor = torch.where(length > 0, factor, torch.ones_like(factor))  # not 0/0
        norms[self.names.branch] = torch.where(finite, length * factor, torch.zeros_like(length))
        norms[self.names.limited] = ((factor < 1) | ~finite).to(length.dtype)
        return [None if each is None else _scaled(each, factor, finite) for each in branch]

    def _norm(self, gradient: Tensor) -> Tensor:
        dims = tuple(range(1, gradient.dim())) if self.many else None
        norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dim=dims)
        return norm


def _scaled(gradient: Tensor, factor: Tensor, finite: Tensor) -> Tensor:
    """Multiply a gradient [...] or [S, ...] by a factor [] or [S]; zeros where it is not finite."""
    shape = factor.shape + (1,) * (gradient.dim() - factor.dim())
    scaled = gradient * factor.reshape(shape)
    return torch.where(finite.reshape(shape), scaled, torch.zeros_like(scaled))


class _Limited(torch.autograd.Function):
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
        own, *others = ctx.limit.scale_branch(main, branch)
        both = own if main is None else main if own is None else main + own
        return (both, None, *others)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], x: Tensor, limit: _Limit, *others: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        def stack(tensor: Tensor, dim: int | None) -> Tensor:
            if dim is None:
                return tensor.expand(info.batch_size, *tensor.shape)
            return tensor.movedim(dim, 0)

        parts = [stack(other, dim) for other, dim in zip(others, in_dims[2:], strict=True)]
        split = _Limited.apply(stack(x, in_dims[0]), limit._replace(many=True), *parts)
        return split, (0,) * len(split)
