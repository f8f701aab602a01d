"""Gradients as difference quotients in float64, one entry at a time, without autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STEP = 1e-5  # of a central difference; its error is about STEP² beside the third derivative


def gradient_norms(
    values: Callable[[], dict[str, float]], tensors: list[Tensor]
) -> dict[str, float]:
    """name → √Σ (∂value/∂entry)² over all entries of the tensors, which `values` reads."""
    squares: dict[str, float] = {}
    with torch.no_grad():
        for tensor in tensors:
            for i in range(tensor.numel()):
                at = tensor.view(-1)[i].item()
                sides = []
                for moved in (at + STEP, at - STEP):
                    tensor.view(-1)[i] = moved
                    sides.append(values())
                tensor.view(-1)[i] = at
                for name, above in sides[0].items():
                    slope = (above - sides[1][name]) / (2 * STEP)
                    squares[name] = squares.get(name, 0.0) + slope * slope
    return {name: square**0.5 for name, square in squares.items()}
