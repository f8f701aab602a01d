"""The linear embedding head F → D, a method's other linear layers, and how they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import nn

from trainables import streams
from trainables.errors import ConfigError
from trainables.machine.kernels import Linear

if TYPE_CHECKING:
    from trainables.config.network import EmbeddingConfig

Init = Literal["kaiming", "orthogonal", "lecun"]


def build_linear_head(features: int, embedding: EmbeddingConfig) -> nn.Linear:
    """Return a new head, its weight drawn as `embedding.init` says.

    kaiming is as in Proxy-Anchor's code, orthogonal as in HypViT's; pca is orthogonal until
    `Method.fit` has run.

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
    initialize_linear(head, "kaiming" if embedding.init == "kaiming" else "orthogonal")
    return head


def build_layer(stream: str, inputs: int, outputs: int, init: Init = "kaiming") -> nn.Linear:
    """Return a new linear layer, whose weight is drawn from a random stream of its own."""
    with streams.use_substream(stream):
        layer = Linear(inputs, outputs)
        initialize_linear(layer, init)
    return layer


def initialize_linear(linear: nn.Linear, init: Init) -> None:
    """Draw the weight from a distribution, and set the bias to zero.

    Args:
        init: "kaiming", N(0, 2 / outputs); "lecun", N(0, 1 / inputs), which keeps the inputs'
            scale; "orthogonal", orthonormal rows (or columns, where outputs > inputs).
    """
    if init == "kaiming":
        nn.init.kaiming_normal_(linear.weight, mode="fan_out")
    elif init == "lecun":
        nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
    else:
        nn.init.orthogonal_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
