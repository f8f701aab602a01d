"""The linear embedding head F → D, a method's other linear layers, and how they start.

Shape legend: N training images · F features · D embedding dimensions.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor, nn

from trainables.data.cache import CacheError, get_or_build
from trainables.machine.kernels import describe_kernels
from trainables.streams import use_substream
from trainables.words.errors import ConfigError

if TYPE_CHECKING:
    from trainables.config.network import EmbeddingConfig

LOG = logging.getLogger(__name__)
START_REVISION = 1  # raise by hand when `find_principal_start` gives other numbers

Init = Literal["kaiming", "orthogonal", "lecun"]
Start = tuple[Tensor, Tensor]
Principal = Callable[[Tensor, int], Start]


def build_linear_head(features: int, embedding: "EmbeddingConfig") -> nn.Linear:
    """Return a new linear head, whose weight is drawn as `embedding.init` says.

    Proxy-Anchor's code has kaiming, HypViT's orthogonal. pca starts as orthogonal, and `Method.fit`
    sets the principal directions later.

    Raises:
        ConfigError: pca with more dimensions than features; F features have at most F directions.
    """
    if embedding.init == "pca" and embedding.dim > features:
        raise ConfigError(
            "embedding.dim",
            f"init pca finds at most {features} directions, one per feature of the backbone, not "
            f"{embedding.dim}",
            "Lower embedding.dim or set embedding.init to orthogonal",
        )
    head = nn.Linear(features, embedding.dim, bias=embedding.bias)
    initialize_linear(head, "kaiming" if embedding.init == "kaiming" else "orthogonal")
    return head


def build_layer(stream: str, inputs: int, outputs: int, init: Init = "kaiming") -> nn.Linear:
    """Return a new linear layer, whose weight is drawn from the random stream `stream`."""
    with use_substream(stream):
        layer = nn.Linear(inputs, outputs)
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


@torch.no_grad()
def find_principal_start(features: Tensor, dim: int) -> Start:
    """Return the D leading principal directions of features[N, F] as rows, and the centring bias.

    They are eigenvectors of the F × F covariance, largest eigenvalue first, computed in float64 on
    the CPU. Each direction's entry of largest magnitude is made positive, because solvers choose
    the sign.

    Returns:
        Directions [D, F] and bias [D], float64, on the CPU.
    """
    x = features.detach().to("cpu", torch.float64)
    mean = x.mean(0)
    centred = x - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    directions = vectors.flip(1)[:, :dim].T
    peak = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    directions = directions * peak.sign()
    return directions, -(directions @ mean)


def load_principal_start(cache: Path) -> Principal:
    """Return a version of `find_principal_start` that keeps its results in `<cache>/starts/<key>`.

    The key describes the CPU's kernels, so that a cached result equals a computed one to the bit.
    """

    def load_or_find(features: Tensor, dim: int) -> Start:
        """Return the head's weight and bias from the cache, or compute both and cache them."""

        def write_start(folder: Path) -> None:
            weight, bias = find_principal_start(features, dim)
            np.save(folder / "weight.npy", weight.numpy(), allow_pickle=False)
            np.save(folder / "bias.npy", bias.numpy(), allow_pickle=False)

        try:
            folder = get_or_build(cache / "starts" / start_key(features, dim), write_start)
        except CacheError as error:
            LOG.warning("The principal directions are not kept in the cache: %s", error)
            return find_principal_start(features, dim)
        weight, bias = (torch.from_numpy(np.load(folder / f"{n}.npy")) for n in ("weight", "bias"))
        return weight, bias

    return load_or_find


def start_key(features: Tensor, dim: int) -> str:
    """Return a digest of the features, D, and the CPU's kernels, on which the directions depend."""
    rows = features.detach().cpu().contiguous()
    inputs = [START_REVISION, dim, str(rows.dtype), list(rows.shape), describe_kernels()]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode())
    digest.update(rows.numpy().data.cast("B"))
    return digest.hexdigest()[:32]
