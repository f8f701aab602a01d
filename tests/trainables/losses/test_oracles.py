"""Proxy-Anchor and NormSoftmax: values and gradients against loops."""

from __future__ import annotations

import pytest
import torch

from tests.oracles import losses as oracles
from tests.trainables.losses.cases import LABELS, D, batch, made, same_value_and_gradients, value
from trainables import streams
from trainables.losses import geometry
from trainables.losses.base import make_pairs
from trainables.losses.proxy_anchor import log_one_plus_column_sum


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("alpha", [1.0, 32.0, 64.0])
def test_proxy_anchor_by_loops(sets: list[set[int]], alpha: float) -> None:
    loss = made("proxy_anchor", alpha=alpha, margin=0.2).double()
    x, labels = batch(sets)
    expected = oracles.proxy_anchor(x, loss.proxies, sets, alpha, 0.2)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.proxies])


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_normsoftmax_by_loops(sets: list[set[int]], temperature: float) -> None:
    loss = made("normsoftmax", temperature=temperature).double()
    x, labels = batch(sets)
    expected = oracles.normsoftmax(x, loss.weights, sets, temperature)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.weights])


def test_proxies_without_a_positive_pull_nothing() -> None:
    loss = made("proxy_anchor")
    x = torch.randn(4, D, generator=streams.create_generator(0, "x"))
    labels = torch.tensor([0, 0, 1, 1])
    alone = made("proxy_anchor", classes=2)
    with torch.no_grad():
        alone.proxies.copy_(loss.proxies[:2])
    x.requires_grad_()
    positives = []
    for each in (loss, alone):
        pairs = make_pairs(labels, each.references().labels)
        quiet = make_pairs(labels, each.references().labels)
        quiet.neg.zero_()
        assert pairs.neg.any()
        s = geometry.score(x, each.proxies, each.geometry)
        positives.append(each(s, quiet))
    torch.testing.assert_close(positives[0], positives[1])


def test_a_large_gathered_sum_is_unchanged_in_float32_and_right_in_float64() -> None:
    x = torch.linspace(15, 60, 200, dtype=torch.float64)[None]
    one = torch.ones_like(x)
    expected = x[0] + torch.log1p(torch.exp(-x[0]))
    torch.testing.assert_close(log_one_plus_column_sum(x, one), expected, rtol=1e-15, atol=0)
    single = x.float().requires_grad_()
    plain = x.float().requires_grad_()
    found, before = (
        log_one_plus_column_sum(single, one.float()),
        torch.nn.functional.softplus(plain[0]),
    )
    assert torch.equal(found, before)
    found.sum().backward()
    before.sum().backward()
    assert torch.equal(single.grad, plain.grad)
