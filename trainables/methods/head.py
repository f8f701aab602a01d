"""The linear embedding head F → D and its three starts; how a method's other layers start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainables.errors import ConfigError
from trainables.machine.kernels import Linear
from trainables.methods.principal import Principal, find_principal_start

if TYPE_CHECKING:
    from trainables.config.network import EmbeddingConfig


def build_linear_head(features: int, embedding: EmbeddingConfig) -> nn.Linear:
    """Return a new head, its bias zero and its weight by `embedding.init`.

    kaiming: normal with fan-out, as in Proxy-Anchor's code. orthogonal: orthonormal rows (or
    columns, where D > F), as in HypViT's. pca: orthogonal until `fit_pca` has run.

    Raises:
        ConfigError: pca with D > F, for there are only F principal directions.
    """
    if embedding.init == "pca" and embedding.dim > features:
        raise ConfigError(
            "embedding.dim",
            f"{embedding.dim} is more than the backbone's {features} features, of which init pca "
            "takes directions. Lower it or take init orthogonal.",
        )
    head = Linear(features, embedding.dim, bias=embedding.bias)
    if embedding.init == "kaiming":
        start_kaiming(head)
    else:
        nn.init.orthogonal_(head.weight)
        if head.bias is not None:
            nn.init.zeros_(head.bias)
    return head


def start_kaiming(linear: nn.Linear) -> None:
    """Draw the weight from N(0, 2 / outputs) and set the bias to zero."""
    nn.init.kaiming_normal_(linear.weight, mode="fan_out")
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def start_lecun(linear: nn.Linear) -> None:
    """Draw the weight from N(0, 1 / inputs), which keeps the inputs' scale; bias zero."""
    nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


@torch.no_grad()
def fit_pca(head: nn.Linear, features: Tensor, find: Principal = find_principal_start) -> None:
    """Set `head` to the D leading principal directions of features[N, F], centred by the bias.

    Args:
        find: gives them; `Method.principal` in a method.
    """
    weight, bias = find(features, head.out_features)
    head.weight.copy_(weight)
    if head.bias is not None:
        head.bias.copy_(bias)
