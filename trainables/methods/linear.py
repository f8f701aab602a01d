"""A linear layer that multiplies by the quicker of torch's two libraries.

Of float32 matrices torch takes MKL for products and oneDNN for convolutions. MKL uses AVX-512 on
Intel's processors alone, oneDNN wherever there is any: on another maker's its product takes half
the time, and a head's products are half of its training. Which library it was decides the last
bits, as the processor does; a trial's identity knows neither.

Shape legend: B batch · F features in · D features out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from trainables.machine.kernels import processor

SMALLEST = 1 << 14  # of a weight's numbers; below, asking costs what the product saves


class Linear(nn.Linear):
    """y = x Wᵀ + b, as `nn.Linear` in all but its last bits, differentiable as often. Of a layer
    either all products of matrices are oneDNN's or none, whatever its batches.

    Attributes:
        many: it is called for many configurations at once (`torch.func.vmap`): by MKL, one product.
    """

    many: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """x[..., F] → [..., D]."""
        if x.dim() == 2 and self._quick(x):
            y: Tensor = _Product.apply(x, self.weight, self.bias)
            return y
        return super().forward(x)

    def _quick(self, x: Tensor) -> bool:
        floats = x.dtype == self.weight.dtype == torch.float32
        large = self.weight.numel() >= SMALLEST and x.device.type == "cpu" and not self.many
        return large and floats and onednn_is_quicker() and not torch.compiler.is_compiling()


@cache
def onednn_is_quicker() -> bool:
    """Whether this processor has AVX-512, is none of Intel's, and torch has both libraries."""
    known = torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    # torch gives it no name of its own; where it has another one day, MKL's is taken.
    there = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and avx512 and there and "GenuineIntel" not in processor()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b by oneDNN, without a gradient; either may be a transposed view."""
    x, weight = _dense(x), _dense(weight)
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _dense(x: Tensor) -> Tensor:
    return x if x.is_contiguous() or x.t().is_contiguous() else x.contiguous()


class _Product(torch.autograd.Function):
    """∂L/∂x = g W, ∂L/∂W = gᵀ x, ∂L/∂b = Σ_B g, by products of the same kind."""

    # `setup_context` would serve `torch.func` too, and takes a quarter as long as a head's product.
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

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
