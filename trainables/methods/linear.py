"""A linear layer that multiplies by the quicker of torch's two libraries (`machine.kernels`).

A head's products are half of its training.

Shape legend: B batch · F features in · D features out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainables.machine.kernels import SMALLEST, onednn_is_quicker, product


class Linear(nn.Linear):
    """y = x Wᵀ + b, as `nn.Linear` in all but its last bits, differentiable as often. Of a layer
    either all products of matrices are oneDNN's or none, whatever its batches.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x[..., F] → [..., D]."""
        if x.dim() == 2 and self._quick(x):
            y: Tensor = _Product.apply(x, self.weight, self.bias)
            return y
        return super().forward(x)

    def _quick(self, x: Tensor) -> bool:
        floats = x.dtype == self.weight.dtype == torch.float32
        large = self.weight.numel() >= SMALLEST and x.device.type == "cpu"
        return large and floats and onednn_is_quicker() and not _transformed() and len(x) > 0


def _transformed() -> bool:
    """Whether something else than autograd goes through: a compiler, or `torch.func`, by which many
    configurations at once are one product of MKL's."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


class _Product(torch.autograd.Function):
    """∂L/∂x = g W, ∂L/∂W = gᵀ x, ∂L/∂b = Σ_B g, by products of the same kind."""

    # `setup_context` would serve `torch.func` too, and takes a quarter as long as a head's product.
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (g,), (x, weight) = gradients, ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            _Product.apply(g, weight.t(), None) if to_x else None,
            _Product.apply(g.t(), x.t(), None) if to_weight else None,
            g.sum(0) if to_bias else None,
        )
