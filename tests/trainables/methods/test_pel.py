"""PEL against loops over its definition; its neutral form."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import ddml as gaussian
from tests.oracles import idml as oracle
from tests.trainables.methods import cases
from tests.trainables.methods.cases import (
    LABELS,
    SAMPLES,
    B,
    C,
    D,
    base,
    build_on,
    noise,
    pair_loss,
    step,
    x,
)
from trainables.losses.base import Geometry

K = SAMPLES
compare = partial(cases.compare, least=4)
attached = partial(build_on, "pel")


def samples(method: Any) -> Tensor:
    """μ + softplus(raw − 5) ε by hand, [K, B, D]."""
    features = x(scale=3)
    mean = features @ method.head.weight.T + method.head.bias
    sigma = gaussian.std(features @ method.raw_std.weight.T + method.raw_std.bias)
    return mean + sigma * noise(K, B, D)


@pytest.mark.parametrize("kind", ["l2", "cosine"])
def test_scores_are_averaged_over_all_pairs_of_samples(kind: Any) -> None:
    method = attached(pair_loss(Geometry(kind, normalize=kind == "cosine")))
    _, terms = step(method)
    z, total = samples(method), torch.zeros((), dtype=torch.float64)
    for i in range(B):
        for j in range(B):
            if i == j:
                continue
            score = torch.zeros((), dtype=torch.float64)
            for k in range(K):
                for other in range(K):
                    a, b = z[k, i], z[other, j]
                    pair = oracle.cosine(a, b) if kind == "cosine" else -oracle.norm(a - b)
                    score = score + pair / K**2
            total = total + score**2 * (-1 if LABELS[i] == LABELS[j] else 1)
    compare(method, terms["metric"].value, total)


@pytest.mark.parametrize("monte_carlo", ["scores", "losses"])
def test_against_proxies_scores_or_losses_are_averaged_over_samples(monte_carlo: str) -> None:
    method = attached(base("proxy_anchor", alpha=9.0), monte_carlo=monte_carlo)
    _, terms = step(method)
    z, proxies = samples(method), method.loss.proxies

    def loss_of(draws: list[int]) -> Tensor:
        def c(i: int, j: int) -> Tensor:
            return torch.stack([oracle.cosine(z[k, i], proxies[j]) for k in draws]).mean()

        return oracle.proxy_anchor(c, [{y} for y in LABELS], C, 9.0, 0.1)

    together = [list(range(K))] if monte_carlo == "scores" else [[k] for k in range(K)]
    expected = torch.stack([loss_of(draws) for draws in together]).mean()
    compare(method, terms["metric"].value, expected)


def test_the_prior_by_loops() -> None:
    method = attached(base("proxy_anchor"), kl=0.3)
    state, terms = step(method)
    compare(method, terms["kl"].value, gaussian.split_closed(state.mean, state.std))
    assert terms["kl"].weight == 0.3
