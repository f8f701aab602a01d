"""What tests of losses share: losses, batches and label sets, and the comparison with an oracle."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainables import streams
from trainables.losses import geometry
from trainables.losses.base import LOSSES, Loss, Pairs, make_pairs

C, D = 5, 4

LABELS = [
    pytest.param([{0}, {0}, {1}, {3}, {3}, {3}], id="plain"),
    pytest.param([{0, 1}, {1}, {2, 4}, {2}, {0}, {3, 4}], id="sets"),
    pytest.param([{2}, {2}, {2}], id="one class"),
    pytest.param([{0}, {4}], id="batch of two"),
]


# Of pair losses: {label set of each item}.
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
    with streams.seed_global_generator(3, "loss"):
        return cls(cls.Config(name=name, **options), classes=classes, dim=dim)


def pairs_of(loss: Loss, labels: Tensor) -> Pairs:
    references = loss.references()
    assert references is not None
    return make_pairs(labels, references.labels)


def paired(labels: Tensor) -> Pairs:
    """The pairs of a batch that is compared with itself."""
    return make_pairs(labels, labels, self_index=torch.arange(len(labels)))


def value(loss: Loss, x: Tensor, labels: Tensor, pairs: Pairs | None = None) -> Tensor:
    """By the seam: score, pair weights, loss. Without references of the batch with itself."""
    references = loss.references()
    if references is None:
        score = geometry.score(x, x, loss.geometry)
        return loss(score, paired(labels), generator=streams.create_generator(0, "draws"))
    score = geometry.score(x, references.vectors, loss.geometry)
    return loss(score, pairs_of(loss, labels) if pairs is None else pairs)


def same_value_and_gradients(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    if not expected.requires_grad:
        expected = expected + sum((0 * leaf).sum() for leaf in leaves)
    ours = torch.autograd.grad(found, leaves)
    theirs = torch.autograd.grad(expected, leaves, allow_unused=True, materialize_grads=True)
    for mine, loops in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, loops, rtol=1e-6, atol=1e-10)


def batch(sets: list[set[int]], *, duplicates: bool = False, dim: int = D) -> tuple[Tensor, Tensor]:
    """Embeddings [B, D], a leaf, and labels [B, 2]. With duplicates: each odd item equals the one
    before, whatever their classes, so that distances are 0 and tie."""
    x = torch.randn(len(sets), dim, dtype=torch.float64, generator=streams.create_generator(0, "x"))
    if duplicates:
        x[1::2] = x[0 : len(sets) // 2 * 2 : 2]
    slots = torch.tensor([sorted(s) + [-1] * (2 - len(s)) for s in sets])
    return x.requires_grad_(), slots


def whole(sets: list[set[int]]) -> list[dict[int, float]]:
    """Label sets as weights of 1."""
    return [dict.fromkeys(sorted(s), 1.0) for s in sets]


# Shares of mixed images; a query without a class; a weight of 1 among them.
SHARES: list[dict[int, float]] = [{0: 0.3, 2: 0.7}, {1: 1.0}, {}, {3: 0.25}, {0: 0.5, 4: 0.5}]


def shared(loss: Loss) -> tuple[Tensor, Tensor, Pairs]:
    """Embeddings, labels and pair weights of SHARES; the negative weights are what is left."""
    x = torch.randn(
        len(SHARES), D, dtype=torch.float64, generator=streams.create_generator(0, "shares")
    )
    references = loss.references()
    assert references is not None
    classes = references.labels.tolist()
    pos = torch.tensor([[share.get(c, 0.0) for c in classes] for share in SHARES])
    slots = torch.tensor([[*share, -1, -1][:2] for share in SHARES])
    return x.requires_grad_(), slots, Pairs(pos, 1 - pos, slots, references.labels[:, None])
