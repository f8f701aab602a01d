"""A method on a loss, in float64, and its terms beside an oracle's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainables import streams
from trainables.config.network import EmbeddingConfig
from trainables.losses.base import Loss
from trainables.methods.base import METHODS


def method_on(
    name: str, loss: Loss, *, features: int, dim: int, classes: int, **options: Any
) -> Any:
    with streams.seed_global_generator(0, "init", "method"):
        return METHODS[name](
            METHODS[name].Config(**options),
            features=features,
            embedding=EmbeddingConfig(dim=dim),
            loss=loss,
            classes=classes,
        ).double()


def compare(
    method: Any,
    found: Tensor,
    expected: Tensor,
    least: int = 2,
    *,
    features: Tensor | None = None,
    unreached: tuple[str, ...] | None = None,
    of_size: float = 0.0,
) -> set[str]:
    """Compare the value and the gradient of each parameter; return the names of those that get one.

    Args:
        least: so many parameters get one. unreached: or all but these, which are not compared.
        features: a further leaf. of_size: tolerance as a share of a gradient's largest entry.
    """
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12, check_dtype=False)
    leaves = {n: p for n, p in method.named_parameters() if n not in (unreached or ())}
    if features is not None:
        leaves["features"] = features
    ours, loops = (
        torch.autograd.grad(
            value,
            list(leaves.values()),
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        for value in (found, expected)
    )
    for name, mine, theirs in zip(leaves, ours, loops, strict=True):
        atol = max(1e-10, of_size * float(theirs.abs().max()))
        torch.testing.assert_close(
            mine, theirs, rtol=1e-6, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )
    reached = {name for name, mine in zip(leaves, ours, strict=True) if mine.any()}
    assert len(reached) >= (least if unreached is None else len(leaves))
    return reached
