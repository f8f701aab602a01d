"""Initial values of a head with `embedding.init: pca`: principal directions, cached on disk.

Shape legend: N training images · F features · D embedding dimensions.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.data.cache import CacheError, get_or_build, write_array
from trainables.machine.kernels import describe_kernels

LOG = logging.getLogger(__name__)
REVISION = 1  # raise by hand when `find_principal_start` gives other numbers

Start = tuple[Tensor, Tensor]
Principal = Callable[[Tensor, int], Start]


@torch.no_grad()
def find_principal_start(features: Tensor, dim: int) -> Start:
    """Return the D leading principal directions of features[N, F] as rows, and the centring bias.

    They are eigenvectors of the F × F covariance, computed in float64 on the CPU, with the largest
    eigenvalue first. The entry of largest magnitude of each direction is made positive, so that
    the result does not depend on the solver's choice of sign.

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

    The key contains the kernels, so that a cached result equals a computed one to the bit.
    """

    def load_or_find(features: Tensor, dim: int) -> Start:
        def write_start(folder: Path) -> None:
            weight, bias = find_principal_start(features, dim)
            write_array(folder / "weight.npy", weight.numpy())
            write_array(folder / "bias.npy", bias.numpy())

        try:
            folder = get_or_build(cache / "starts" / start_key(features, dim), write_start)
        except CacheError as error:
            LOG.warning("The principal directions are not kept: %s", error)
            return find_principal_start(features, dim)
        weight, bias = (torch.from_numpy(np.load(folder / f"{n}.npy")) for n in ("weight", "bias"))
        return weight, bias

    return load_or_find


def start_key(features: Tensor, dim: int) -> str:
    """Return a digest of everything that `find_principal_start` depends on."""
    rows = features.detach().cpu().contiguous()
    inputs = [REVISION, dim, str(rows.dtype), list(rows.shape), describe_kernels()]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode())
    digest.update(rows.numpy().data.cast("B"))
    return digest.hexdigest()[:32]
