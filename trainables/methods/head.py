"""The linear embedding head F → D and its three starts; how a method's other layers start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainables.errors import ConfigError

if TYPE_CHECKING:
    from trainables.config.network import EmbeddingConfig


def linear_head(features: int, embedding: EmbeddingConfig) -> nn.Linear:
    """A new head, its bias zero and its weight by `embedding.init`.

    kaiming: normal with fan-out, as in Proxy-Anchor's code. orthogonal: orthonormal rows (or
    columns, where D > F), as in HypViT's. pca: orthogonal until `fit_pca` has run.

    Raises:
        ConfigError: pca with D > F, for there are only F principal directions.
    """
    if embedding.init == "pca" and embedding.dim > features:
        raise ConfigError(
            "embedding.dim",
            f"{embedding.dim} with init pca",
            f"at most the backbone's {features} features",
            "Lower the dimension or take init orthogonal",
        )
    head = nn.Linear(features, embedding.dim, bias=embedding.bias)
    if embedding.init == "kaiming":
        start_kaiming(head)
    else:
        nn.init.orthogonal_(head.weight)
        if head.bias is not None:
            nn.init.zeros_(head.bias)
    return head


def start_kaiming(linear: nn.Linear) -> None:
    """Weight N(0, 2 / outputs), bias zero."""
    nn.init.kaiming_normal_(linear.weight, mode="fan_out")
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def start_lecun(linear: nn.Linear) -> None:
    """Weight N(0, 1 / inputs), bias zero: outputs about as large as the inputs' entries."""
    nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


@torch.no_grad()
def fit_pca(head: nn.Linear, features: Tensor) -> None:
    """Set `head` to the D leading principal directions of features[N, F], centred by the bias.

    Exact: eigenvectors of the F × F covariance, in float64 on the CPU, largest eigenvalue
    first. The entry of largest magnitude of each direction is made positive, so that the
    result does not depend on the solver's choice of sign.
    """
    x = features.detach().to("cpu", torch.float64)
    mean = x.mean(0)
    centred = x - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    directions = vectors.flip(1)[:, : head.out_features].T
    peak = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    directions = directions * peak.sign()
    head.weight.copy_(directions)
    if head.bias is not None:
        head.bias.copy_(-(directions @ mean))
