"""What the tests of pair losses share: batches, a loss by name, its value on embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables import streams
from trainables.losses import geometry
from trainables.losses.base import LOSSES, Loss, Pairs, make_pairs

C, D = 5, 4

CASES: dict[str, list[set[int]]] = {
    "plain": [{0}, {0}, {1}, {3}, {3}, {3}, {1}, {4}],
    "sets": [{0, 1}, {1}, {2, 4}, {2}, {0}, {3, 4}, {3}],
    "one-image classes": [{0}, {1}, {2}, {2}],
    "one class": [{2}, {2}, {2}],
    "all differ": [{0}, {1}, {2}],
    "two": [{0}, {4}],
}


def made(name: str, *, classes: int = C, dim: int = D, **options: object) -> Loss:
    cls = LOSSES[name]
    with streams.seeded(3, "loss"):
        return cls(cls.Config(name=name, **options), classes=classes, dim=dim).double()


def batch(sets: list[set[int]], *, duplicates: bool = False, dim: int = D) -> tuple[Tensor, Tensor]:
    """Embeddings [B, D], a leaf, and labels [B, 2]. With duplicates: each odd item equals the one
    before, whatever their classes, so that distances are 0 and tie."""
    x = torch.randn(len(sets), dim, dtype=torch.float64, generator=streams.generator(0, "x"))
    if duplicates:
        x[1::2] = x[0 : len(sets) // 2 * 2 : 2]
    slots = torch.tensor([sorted(s) + [-1] * (2 - len(s)) for s in sets])
    return x.requires_grad_(), slots


def paired(labels: Tensor) -> Pairs:
    return make_pairs(labels, labels, self_index=torch.arange(len(labels)))


def value(loss: Loss, x: Tensor, labels: Tensor, *names: str) -> Tensor:
    """The loss of the batch compared with itself; draws from the stream `names`."""
    score = geometry.score(x, x, loss.geometry)
    return loss(score, paired(labels), generator=streams.generator(0, "draws", *names))


def same_value_and_gradients(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    if not expected.requires_grad:
        expected = expected + sum((0 * leaf).sum() for leaf in leaves)
    ours = torch.autograd.grad(found, leaves)
    theirs = torch.autograd.grad(expected, leaves, allow_unused=True, materialize_grads=True)
    for mine, loops in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, loops, rtol=1e-6, atol=1e-10)
