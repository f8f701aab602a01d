"""PEL against loops over its definition; its neutral form."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import ddml as gaussian
from tests.oracles import idml as oracle
from tests.trainables.methods import method_on
from trainables import streams
from trainables.config.registry import ComponentConfig
from trainables.losses.base import LOSSES, Geometry, Loss, Pairs
from trainables.methods.base import Progress, Term

B, FEATURES, D, C, K = 5, 7, 4, 5, 3
LABELS = [0, 0, 1, 3, 3]
compare = partial(method_on.compare, least=4)


class PairLoss(Loss):
    """Without references; its geometry is set by the test."""

    def forward(self, score: Tensor, pairs: Pairs, *, generator: Any = None) -> Tensor:
        return (score.square() * (pairs.neg - pairs.pos)).sum((-2, -1)).mean()


def pair_loss(geometry: Geometry) -> Loss:
    loss = PairLoss(ComponentConfig(), classes=C, dim=D)
    loss.geometry = geometry  # type: ignore[misc]
    return loss


def base(name: str, **options: Any) -> Loss:
    with streams.seed_global_generator(0, "init", "loss"):
        return LOSSES[name](LOSSES[name].Config(**options), classes=C, dim=D)


def attached(method: str, loss: Loss, **options: Any) -> Any:
    if method == "pel":
        options = {"samples": K, **options}
    return method_on.method_on(method, loss, features=FEATURES, dim=D, classes=C, **options)


def step(method: Any) -> tuple[Any, dict[str, Term]]:
    x = torch.randn(B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x"))
    labels = torch.tensor(LABELS)[:, None]
    state = method(3 * x, labels, Progress(), streams.create_generator(0, "method"))
    return state, method.terms(state, labels, Progress(), streams.create_generator(0, "loss"))


def samples(method: Any) -> Tensor:
    """μ + softplus(raw − 5) ε by hand, [K, B, D]."""
    x = 3 * torch.randn(
        B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )
    mean = x @ method.head.weight.T + method.head.bias
    sigma = gaussian.std(x @ method.raw_std.weight.T + method.raw_std.bias)
    draw = streams.create_generator(0, "method")
    return mean + sigma * torch.randn(K, B, D, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["l2", "cosine"])
def test_scores_are_averaged_over_all_pairs_of_samples(kind: Any) -> None:
    method = attached("pel", pair_loss(Geometry(kind, normalize=kind == "cosine")))
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
                    each = oracle.cosine(a, b) if kind == "cosine" else -oracle.norm(a - b)
                    score = score + each / K**2
            total = total + score**2 * (-1 if LABELS[i] == LABELS[j] else 1)
    compare(method, terms["metric"].value, total)


@pytest.mark.parametrize("monte_carlo", ["scores", "losses"])
def test_against_proxies_scores_or_losses_are_averaged_over_samples(monte_carlo: str) -> None:
    method = attached("pel", base("proxy_anchor", alpha=9.0), monte_carlo=monte_carlo)
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
    method = attached("pel", base("proxy_anchor"), kl=0.3)
    state, terms = step(method)
    compare(method, terms["kl"].value, gaussian.split_closed(state.mean, state.std))
    assert terms["kl"].weight == 0.3
