"""DetReg's R, augmented points and objective as loops over Eq. 7, 10 and 11, in float64.

A layer is a Python function of one vector; its Jacobian is autograd's, so that nothing of the
flow's own log-scales is used. See `losses.py` for the manner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Layer = Callable[[Tensor], Tensor]


def flow_input(z: Tensor, length: str) -> Tensor:
    """z as it is ("raw"), of length 1 ("unit") or of length √D ("sqrt_d")."""
    if length == "raw":
        return z
    total = z.new_zeros(())
    for value in z:
        total = total + value * value
    unit = z / total.sqrt()
    return unit if length == "unit" else unit * math.sqrt(len(z))


def layers_of(flow: Any) -> list[Layer]:
    """The maps of ℝᴰ, in the order of x, that a flow's parameters stand for."""
    config, dim = flow.config, flow.dim
    clamp = config.clamp
    found: list[Layer] = []
    for k, coupling in enumerate(flow.couplings):
        order = flow.orders[k // 2].tolist()
        first, second = order[: dim // 2], order[dim // 2 :]
        passive, active = (first, second) if k % 2 == 0 else (second, first)
        linears = [(m.weight, m.bias) for m in coupling.subnet if hasattr(m, "weight")]
        found.append(_coupling(linears, active, passive, config.kind, clamp))
    if flow.scale is not None:
        found.append(lambda x: x * torch.exp(clamp * 0.636 * torch.atan(flow.scale)))
    return found


def _coupling(
    linears: list[tuple[Tensor, Tensor]],
    active: list[int],
    passive: list[int],
    kind: str,
    clamp: float,
) -> Layer:
    def layer(x: Tensor) -> Tensor:
        hidden = [x[i] for i in passive]
        for place, (weight, bias) in enumerate(linears):
            out = []
            for row, b in zip(weight, bias, strict=True):
                total = b
                for w, h in zip(row, hidden, strict=True):
                    total = total + w * h
                last = place == len(linears) - 1
                out.append(total if last else torch.clamp(total, min=0))
            hidden = out
        y = [x[i] for i in range(len(x))]
        for n, i in enumerate(active):
            if kind == "nice":
                y[i] = x[i] + hidden[n]
            else:
                scale = torch.exp(clamp * 0.636 * torch.atan(hidden[n]))
                y[i] = x[i] * scale + hidden[len(active) + n]
        return torch.stack(y)

    return layer


def through(layers: list[Layer], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def jacobian(layer: Layer, x: Tensor) -> Tensor:
    """[D, D], row by row, with a graph for gradients of what is made of it."""
    inside = x if x.requires_grad else x.detach().requires_grad_()
    y = layer(inside)
    rows = [torch.autograd.grad(out, inside, create_graph=True, allow_unused=True)[0] for out in y]
    return torch.stack([torch.zeros_like(x) if row is None else row for row in rows])


def singular_values(matrix: Tensor) -> Tensor:
    """Square roots of the eigenvalues of JᵀJ."""
    return torch.linalg.eigvalsh(matrix.T @ matrix).sqrt()


def r_of_point(layers: list[Layer], x: Tensor, spectrum: str, across: str) -> Tensor:
    """R at one point: Σ_layers, or the mean over them, of 1/d Σ_i log(λ_i + 1); or of products."""
    d = len(x)
    if across == "product" and spectrum == "singular":
        lambdas = singular_values(jacobian(lambda v: through(layers, v), x))
        return _mean_log1(lambdas, d)
    total, product = x.new_zeros(()), torch.ones_like(x)
    for layer in layers:
        matrix = jacobian(layer, x)
        lambdas = matrix.diagonal() if spectrum == "diagonal" else singular_values(matrix)
        total, product = total + _mean_log1(lambdas, d), product * lambdas
        x = layer(x)
    if across == "product":
        return _mean_log1(product, d)
    return total / len(layers) if across == "mean" else total


def _mean_log1(lambdas: Tensor, d: int) -> Tensor:
    total = lambdas.new_zeros(())
    for value in lambdas:
        total = total + torch.log(value + 1)
    return total / d


def neighbour(z: Tensor, labels: list[int], i: int, rank: int) -> int | None:
    """The rank-th nearest item of i's class, or None where the class has too few."""
    others = [j for j in range(len(z)) if j != i and labels[j] == labels[i]]
    others.sort(key=lambda j: math.dist(z[i].tolist(), z[j].tolist()))
    return others[rank - 1] if len(others) >= rank else None


def augmented(
    z: Tensor, labels: list[int], epsilon: float, *, rank: int = 1, printed: bool = False
) -> list[Tensor]:
    """z_i + ε (z_j − z_i), or as printed z_i + ε (z_i − z_j), of those that have a neighbour."""
    points = []
    for i in range(len(z)):
        j = neighbour(z, labels, i, rank)
        if j is not None:
            points.append(z[i] + epsilon * (z[i] - z[j] if printed else z[j] - z[i]))
    return points


def r_of_set(layers: list[Layer], points: list[Tensor], spectrum: str, across: str) -> Tensor:
    """R(Z), the mean over the set."""
    values = [r_of_point(layers, x, spectrum, across) for x in points]
    return sum(values[1:], values[0]) / len(values)
