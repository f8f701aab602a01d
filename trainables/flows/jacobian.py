"""Full Jacobian matrices of a flow and of its layers, for small D.

Shape legend: D dimensions · N items · A active, P passive dimensions.

They cost a backward pass of a subnet for each of the A rows, and N · D² stored numbers per layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from trainables.flows.flow import Flow, soft_clamp


def compute_layer_jacobians(flow: Flow, x: Tensor) -> list[Tensor]:
    """Return the Jacobian [N, D, D] of each coupling, at its input on the way of x[N, D].

    Rows and columns are in the coupling's order, passive dimensions first, so that each is

        [ I   0        ]
        [ A   diag e^s ]      A = ∂y_a/∂x_p

    A diagonal scaling adds a matrix [D, D], in the order of x.
    """
    layers: list[Tensor] = []
    for coupling, active, passive in flow.walk(x):

        def move(p: Tensor, a: Tensor, coupling: nn.Module = coupling) -> tuple[Tensor, Tensor]:
            y, log_scale = coupling(a, p, None)
            return y, log_scale

        by_passive, log_scale = vmap(jacrev(move, has_aux=True))(passive, active)
        n, size = passive.shape
        identity = torch.eye(size, dtype=passive.dtype, device=passive.device).expand(n, -1, -1)
        above = torch.cat([identity, passive.new_zeros(n, size, active.shape[1])], dim=2)
        below = torch.cat([by_passive, torch.diag_embed(log_scale.exp())], dim=2)
        layers.append(torch.cat([above, below], dim=1))
    if flow.scale is not None:
        layers.append(soft_clamp(flow.scale, flow.config.clamp).exp().diag())
    return layers


def compute_flow_jacobian(flow: Flow, x: Tensor) -> Tensor:
    """Return ∂z/∂x of the complete flow, [N, D, D], for x[N, D]."""
    jacobian: Tensor = vmap(jacrev(lambda row: flow(row).z))(x)
    return jacobian
