"""Distance-weighted sampling: its weights, and that draws follow them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from tests.oracles import pairs as oracles
from trainables import streams
from trainables.losses.margin import draw_negatives, inverse_density


def test_weights_by_the_equation() -> None:
    d = torch.tensor([0.1, 0.5, 0.9, 1.2, 1.39, 1.4, 1.99, 2.0, 2.1], dtype=torch.float64)
    for dim in (2, 3, 4, 64):
        found = inverse_density(d, dim, near=0.5, far=1.4)
        for i, distance in enumerate(d.tolist()):
            if distance >= 1.4:
                assert found[i] == -math.inf
            else:
                expected = math.log(oracles.inverse_density(max(distance, 0.5), dim))
                assert found[i].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_draws_follow_the_weights() -> None:
    log_weights = torch.tensor([0.0, -1.0, -math.inf, 2.0, 0.5, 9.0], dtype=torch.float64)
    neg = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.5, 0.0], dtype=torch.float64).expand(1, 6)
    draw = streams.create_generator(0, "draw")
    rows = torch.cat(
        [draw_negatives(log_weights.expand(500, 1, 6), neg, draw).flatten() for _ in range(10)]
    )
    weights = neg[0] * log_weights.exp()
    counts = torch.bincount(rows, minlength=6)
    assert counts[weights == 0].sum() == 0
    kept = weights > 0
    expected = weights[kept] / weights[kept].sum() * len(rows)
    assert stats.chisquare(counts[kept].numpy(), expected.numpy()).pvalue > 1e-3


def test_queries_out_of_reach_draw_alike_and_queries_without_negatives_get_zero() -> None:
    neg = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    log_weights = torch.full((300, 2, 4), -math.inf)
    found = draw_negatives(log_weights, neg, streams.create_generator(0, "draw"))
    assert found.shape == (300, 2, 4)
    assert set(found[:, 0].flatten().tolist()) == {1, 3}
    assert (found[:, 0] == 1).double().mean().item() == pytest.approx(0.5, abs=0.05)
    assert (found[:, 1] == 0).all()


def test_only_negatives_are_ever_drawn() -> None:
    """Weights of very different sizes: sums that rounding leaves flat are never chosen."""
    draw = streams.create_generator(0, "draw")
    log_weights = 200 * torch.randn(50, 40, 40, generator=draw)
    neg = (torch.rand(40, 40, generator=draw) < 0.3).float()
    neg[:, 7] = 1
    found = draw_negatives(log_weights, neg, draw)
    assert neg.expand(50, 40, 40).gather(-1, found).min() == 1
