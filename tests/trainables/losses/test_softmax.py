"""Softmax over products and label smoothing: values and gradients against loops."""

from __future__ import annotations

import pytest
import torch

from tests.oracles import losses as oracles
from tests.trainables.losses.cases import LABELS, batch, made, same_value_and_gradients, value
from trainables.losses.softmax import Softmax


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("smoothing", [None, 0.1, 0.5])
def test_softmax_by_loops(sets: list[set[int]], smoothing: float | None) -> None:
    loss = made("softmax", label_smoothing=smoothing).double()
    assert isinstance(loss, Softmax) and loss.bias is not None
    with torch.no_grad():
        loss.bias.copy_(torch.linspace(-1, 2, len(loss.bias)))
    x, labels = batch(sets)
    logits = [
        [oracles.product(each, w) + b for w, b in zip(loss.weights, loss.bias, strict=True)]
        for each in x
    ]
    expected = oracles.smoothed_softmax(logits, sets, smoothing or 0.0)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.weights, loss.bias])


@pytest.mark.parametrize("sets", LABELS)
def test_smoothed_normsoftmax_by_loops(sets: list[set[int]]) -> None:
    loss = made("normsoftmax", temperature=0.2, label_smoothing=0.1).double()
    x, labels = batch(sets)
    logits = [[oracles.cosine(each, w) / 0.2 for w in loss.weights] for each in x]
    expected = oracles.smoothed_softmax(logits, sets, 0.1)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.weights])


def test_an_item_without_a_class_counts_as_nothing_smoothed_or_not() -> None:
    for smoothing in (None, 0.3):
        loss = made("softmax", label_smoothing=smoothing)
        x, _ = batch([{0}, {1}])
        both = value(loss.double(), x, torch.tensor([[0], [-1]]))
        alone = value(loss, x[:1], torch.tensor([[0]]))
        torch.testing.assert_close(both, alone / 2)
