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

from trainables.data.cache import UNWRITABLE, get_or_build
from trainables.machine.kernels import describe_kernels

LOG = logging.getLogger(__name__)
REVISION = 1  # raise by hand when `find_principal_start` gives other numbers

Start = tuple[Tensor, Tensor]
Principal = Callable[[Tensor, int], Start]


@torch.no_grad()
def find_principal_start(features: Tensor, dim: int) -> Start:
    """Return the D leading principal directions of features[N, F] as rows [D, F], and the bias [D]
    that centres what they give; float64, on the CPU.

    Exact: eigenvectors of the F × F covariance, in float64 on the CPU, largest eigenvalue
    first. The entry of largest magnitude of each direction is made positive, so that the
    result does not depend on the solver's choice of sign.
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
    """Return a cached version of `find_principal_start`.

    The two arrays are published atomically in `<cache>/starts/<key>`. The key is a digest of the
    features, of D and of the kernels, so that a cached result equals a computed one to the bit. If
    the cache cannot be written, the result is not stored.
    """

    def find(features: Tensor, dim: int) -> Start:
        def build(fresh: Path) -> None:
            for name, part in zip(
                ("weight", "bias"), find_principal_start(features, dim), strict=True
            ):
                np.save(fresh / f"{name}.npy", part.numpy(), allow_pickle=False)

        try:
            folder = get_or_build(cache / "starts" / start_key(features, dim), build)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            LOG.warning("the principal directions are not kept: %s", error)
            return find_principal_start(features, dim)
        weight, bias = (
            torch.from_numpy(np.load(folder / f"{name}.npy", allow_pickle=False))
            for name in ("weight", "bias")
        )
        return weight, bias

    return find


def start_key(features: Tensor, dim: int) -> str:
    """Return a digest of everything that `find_principal_start` depends on."""
    rows = features.detach().cpu().contiguous()
    about = [REVISION, dim, str(rows.dtype), list(rows.shape), describe_kernels()]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    digest.update(rows.numpy().data.cast("B"))
    return digest.hexdigest()[:32]
