"""Batches: M per class, different classes, everyone's turn, stateless."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trainables.data.sampler import count_steps_per_epoch, draw_epoch_batches
from trainables.words.errors import ConfigError

SIZES = st.lists(st.integers(1, 12), min_size=2, max_size=15)


def labels_of(sizes: list[int]) -> torch.Tensor:
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


@settings(deadline=None, max_examples=150)
@given(
    SIZES,
    st.integers(2, 5),
    st.integers(1, 8),
    st.sampled_from(["any", "class_major"]),
    st.integers(0, 3),
)
def test_every_batch(sizes: list[int], m: int, k: int, layout, epoch: int) -> None:
    assume(k <= len(sizes))
    labels = labels_of(sizes)
    batches = draw_epoch_batches(labels, k * m, m, 7, epoch, layout)
    assert batches.shape == (max(1, -(-sum(sizes) // (k * m))), k * m)
    assert batches.dtype == torch.int64
    for batch in batches:
        counts = torch.bincount(labels[batch], minlength=len(sizes))
        assert sorted(counts.tolist())[-k:] == [m] * k  # k different classes, m of each
        for c in torch.nonzero(counts)[:, 0].tolist():
            used = torch.unique(batch[labels[batch] == c], return_counts=True)[1]
            # Again only where a class has fewer than M, and then evenly.
            assert used.max() == -(-m // sizes[c])
    blocks = labels[batches].view(len(batches), k, m)
    if layout == "class_major":
        assert (blocks == blocks[..., :1]).all()


@settings(deadline=None)
@given(SIZES, st.integers(2, 4), st.integers(1, 6))
def test_classes_and_images_take_turns(sizes: list[int], m: int, k: int) -> None:
    assume(k <= len(sizes))
    labels = labels_of(sizes)
    batches = draw_epoch_batches(labels, k * m, m, 0, 0)
    visits = torch.bincount(labels[batches].flatten(), minlength=len(sizes)) // m
    assert visits.max() - visits.min() <= 1
    seen = torch.bincount(batches.flatten(), minlength=len(labels))
    for c in range(len(sizes)):
        of_class = seen[labels == c]
        assert of_class.max() - of_class.min() <= 1


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 20))
def test_one_per_class_is_a_plain_shuffle(n: int, batch: int) -> None:
    batches = draw_epoch_batches(torch.zeros(n).long(), batch, 1, 0, 0)
    flat = batches.flatten()
    assert len(batches) == count_steps_per_epoch(n, batch)
    assert sorted(flat[:n].tolist()) == list(range(n))[: len(flat)]


def test_stateless_in_seed_and_epoch() -> None:
    labels = labels_of([5] * 20)
    first = draw_epoch_batches(labels, 16, 4, 1, 3)
    torch.manual_seed(123)
    assert torch.equal(draw_epoch_batches(labels, 16, 4, 1, 3), first)
    assert not torch.equal(draw_epoch_batches(labels, 16, 4, 1, 4), first)
    assert not torch.equal(draw_epoch_batches(labels, 16, 4, 2, 3), first)


@pytest.mark.parametrize(
    ("sizes", "batch", "m", "message"),
    [
        ([3] * 5, 24, 4, "need 6 training classes, and data.split leaves 5"),
        ([3] * 5, 10, 4, "a multiple of per_class 4"),
        ([], 4, 2, "leaves no training images"),
    ],
)
def test_what_cannot_be_sampled(sizes: list[int], batch: int, m: int, message: str) -> None:
    labels = labels_of(sizes) if sizes else torch.empty(0, dtype=torch.int64)
    with pytest.raises(ConfigError, match=message):
        draw_epoch_batches(labels, batch, m, 0, 0)
