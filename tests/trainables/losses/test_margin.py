"""The margin loss against loops and against pytorch-metric-learning."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.oracles import pairs as oracles
from tests.trainables.losses.cases import (
    CASES,
    C,
    batch,
    made,
    paired,
    same_value_and_gradients,
    value,
)
from trainables import streams
from trainables.losses import geometry
from trainables.losses.margin import Margin


def drawn(loss: Margin, x: Tensor, labels: Tensor) -> list[tuple[int, int, int]]:
    pairs = paired(labels)
    distance = -geometry.score(x, x, loss.geometry).detach()
    n = loss.draw_negatives(distance, pairs, streams.create_generator(0, "draws"))
    a, p = pairs.pos.nonzero(as_tuple=True)
    return list(zip(a.tolist(), p.tolist(), n[a, p].tolist(), strict=True))


@pytest.mark.parametrize("case", [case for case in CASES if case != "one class"])
@pytest.mark.parametrize("beta_of", ["class", "all"])
@pytest.mark.parametrize("sampling", ["distance_weighted", "uniform"])
def test_by_loops(case: str, beta_of: str, sampling: str) -> None:
    loss = made("margin", beta_of=beta_of, sampling=sampling, margin=0.25, beta=1.1).double()
    assert isinstance(loss, Margin)
    with torch.no_grad():
        loss.beta += 0.2 * torch.rand(
            loss.beta.shape, generator=streams.create_generator(0, "beta")
        )
    x, labels = batch(CASES[case])

    def beta(a: int) -> Tensor:
        if beta_of == "all":
            return loss.beta[0]
        return sum(loss.beta[c] for c in CASES[case][a]) / len(CASES[case][a])

    d = oracles.distances(x, squared=False, normalize=True)
    expected = oracles.margin_loss(drawn(loss, x, labels), d, 0.25, beta, x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.beta])


def test_a_single_class_attracts_and_repels_nothing() -> None:
    """Differs from pytorch-metric-learning, which has no loss without triplets."""
    loss = made("margin", beta=0.1).double()
    x, labels = batch(CASES["one class"])
    d = oracles.distances(x, squared=False, normalize=True)
    pairs = [(a, p) for a in range(3) for p in range(3) if a != p]
    within = [0.2 + d(a, p) - loss.beta[2] for a, p in pairs]
    same_value_and_gradients(value(loss, x, labels), sum(within) / len(within), [x, loss.beta])


def test_beta_is_regularised_by_its_mean_and_trains_as_a_margin() -> None:
    loss = made("margin", beta=0.7, nu=0.3, beta_of="class").double()
    term, weight = loss.penalty()["beta"]
    assert (term.item(), weight) == (pytest.approx(0.7), 0.3)
    (group,) = loss.param_groups()
    assert group.role == "margins"
    assert [p.shape for p in group.params] == [(C,)]
    (alone,) = made("margin", beta_of="all").double().param_groups()
    assert [p.shape for p in alone.params] == [(1,)]
