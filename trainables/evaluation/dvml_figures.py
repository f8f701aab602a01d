"""DVML's Table 4: is the spread of a class an isotropic Gaussian, and how large is it?

The paper (Lin et al., ECCV 2018) prints p-values of a Kolmogorov–Smirnov test and an "average
relative deviation" and defines neither; what is computed here is a definition of ours, and its
numbers need not match the paper's. Both are of rows brought to unit length, over classes with two
images or more. Shape legend: n items of a class · E embedding.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trainables.errors import ConfigError
from trainables.evaluation.structure import centres

BLOCK_NUMBERS = 2**24


def gaussian_p(rows: Tensor, labels: Tensor) -> float:
    """Mean over classes of the mean over dimensions of a p-value, in [0, 1].

    Of a class, x − μ_c is divided by one σ_c for all dimensions (isotropic), σ_c² the mean of all
    its squares; each dimension's n numbers are tested against N(0, 1), D the largest distance of
    the two distribution functions, p = Q((√n + 0.12 + 0.11/√n)·D), Q Kolmogorov's survival
    function with Stephens' correction. As μ_c and σ_c come from the data, p is not uniform under
    the hypothesis but larger: drawn Gaussians give 0.71 to 0.77 (4 to 400 items of a class, 16 to
    512 dimensions), the paper prints 0.75 to 0.84. A class of equal items has σ = 0 and p 0.
    """
    return float(_p_values(rows, labels).mean())


def gaussian_p_deviation(rows: Tensor, labels: Tensor) -> float:
    """The "±" beside `gaussian_p`: standard deviation over classes (population) of a class's p."""
    return float(_p_values(rows, labels).std(correction=0))


def relative_deviation(rows: Tensor, labels: Tensor) -> float:
    """Mean over classes of (mean distance of its items to its centre μ_c)/‖μ_c‖, ≥ 0 (the paper
    prints per cent). A class whose centre is 0 makes it infinite, which is an error."""
    of_class = centres(rows, labels)
    sizes = torch.bincount(labels)
    _some(sizes)
    away = torch.linalg.vector_norm(rows - of_class[labels], dim=1).double()
    order = labels.argsort(stable=True)
    spread = torch.segment_reduce(away[order], "mean", lengths=sizes)
    length = torch.linalg.vector_norm(of_class.double(), dim=1)
    if (length[sizes > 1] == 0).any():
        raise ConfigError("metrics.relative_deviation", "a class centre of length 0", "others")
    return float((spread / length)[sizes > 1].mean())


def _some(sizes: Tensor) -> None:
    if not (sizes > 1).any():
        raise ConfigError("metrics", "classes of one image each", "a class with two images")


def _p_values(rows: Tensor, labels: Tensor) -> Tensor:
    """Of every class with two images or more, float64."""
    _some(torch.bincount(labels))
    return torch.cat([_class_p(own) for own in _by_size(rows, labels)])


def _by_size(rows: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Classes of one size n > 1 together [c, n, E], as many as memory allows."""
    sizes, order = torch.bincount(labels), labels.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    for size in torch.unique(sizes[sizes > 1]).tolist():
        step = max(1, BLOCK_NUMBERS // (size * rows.shape[1]))
        for part in torch.split(starts[sizes == size], step):
            yield rows[order[part[:, None] + torch.arange(size, device=rows.device)]]


def _class_p(own: Tensor) -> Tensor:
    """[c, n, E] → [c]."""
    size = own.shape[1]
    away = own - own.mean(1, keepdim=True)
    sigma = away.square().mean((1, 2), keepdim=True).sqrt()
    # Equal items differ from their mean by rounding only.
    flat = sigma <= 1e-6 * torch.linalg.vector_norm(own, dim=2).mean(1)[:, None, None]
    below = torch.special.ndtr((away / torch.where(flat, 1.0, sigma)).sort(1).values)
    step = torch.arange(size, device=own.device, dtype=own.dtype)[None, :, None] / size
    distance = torch.maximum(below - step, step + 1 / size - below).amax(1).double()
    root = size**0.5
    p = kolmogorov((root + 0.12 + 0.11 / root) * distance)
    return torch.where(flat[:, :, 0], 0.0, p).mean(1)


def kolmogorov(x: Tensor) -> Tensor:
    """Q(x) = 2 Σ_{j ≥ 1} (−1)^{j−1} exp(−2j²x²), in [0, 1]; 1 below 0.2, where 1 − Q < 1e-12."""
    j = torch.arange(1, 31, device=x.device, dtype=x.dtype)
    signs = 1 - 2 * ((j.long() + 1) % 2).to(x.dtype)
    total = sum(s * torch.exp(-2 * (i * x) ** 2) for s, i in zip(signs, j, strict=True))
    return torch.where(x < 0.2, 1.0, (2 * total).clamp(0, 1))
