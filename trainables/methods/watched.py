"""The gradient that comes back through one branch of a method, watched on its way."""

from __future__ import annotations

from typing import Any

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
