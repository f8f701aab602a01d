"""The margin loss against loops and against pytorch-metric-learning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml
from torch import Tensor, nn

from tests.oracles import pairs as oracles
from tests.trainables.losses.pair_cases import (
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
    n = loss.negatives(distance, pairs, streams.generator(0, "draws"))
    a, p = pairs.pos.nonzero(as_tuple=True)
    return list(zip(a.tolist(), p.tolist(), n[a, p].tolist(), strict=True))


@pytest.mark.parametrize("case", [case for case in CASES if case != "one class"])
@pytest.mark.parametrize("beta_of", ["class", "all"])
@pytest.mark.parametrize("sampling", ["distance_weighted", "uniform"])
def test_by_loops(case: str, beta_of: str, sampling: str) -> None:
    loss = made("margin", beta_of=beta_of, sampling=sampling, margin=0.25, beta=1.1)
    assert isinstance(loss, Margin)
    with torch.no_grad():
        loss.beta += 0.2 * torch.rand(loss.beta.shape, generator=streams.generator(0, "beta"))
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
    loss = made("margin", beta=0.1)
    x, labels = batch(CASES["one class"])
    d = oracles.distances(x, squared=False, normalize=True)
    pairs = [(a, p) for a in range(3) for p in range(3) if a != p]
    within = [0.2 + d(a, p) - loss.beta[2] for a, p in pairs]
    same_value_and_gradients(value(loss, x, labels), sum(within) / len(within), [x, loss.beta])


@settings(max_examples=30, deadline=None)
@given(
    classes=st.lists(st.integers(0, C - 1), min_size=3, max_size=9),
    margin=st.sampled_from([0.05, 0.2, 0.8]),
    beta_of=st.sampled_from(["class", "all"]),
)
def test_as_in_pytorch_metric_learning(classes: list[int], margin: float, beta_of: str) -> None:
    """Given the drawn triplets; their regulariser is another (see the class), so nu is 0."""
    loss = made("margin", margin=margin, beta_of=beta_of)
    assert isinstance(loss, Margin)
    x, labels = batch([{c} for c in classes])
    triplets = drawn(loss, x, labels)
    if len(set(classes)) < 2 or not triplets:
        return
    theirs = pml.MarginLoss(
        margin, 0, 1.2, learn_beta=True, num_classes=C if beta_of == "class" else None
    )
    theirs.beta = nn.Parameter(loss.beta.detach().clone())
    mined = tuple(torch.tensor(c) for c in zip(*triplets, strict=True))
    found, expected = value(loss, x, labels), theirs(x, torch.tensor(classes), mined)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    ours = torch.autograd.grad(found, [x, loss.beta])
    other = torch.autograd.grad(expected, [x, theirs.beta])
    for mine, library in zip(ours, other, strict=True):
        torch.testing.assert_close(mine, library, rtol=1e-6, atol=1e-10)


def test_beta_is_regularised_by_its_mean_and_trains_as_a_margin() -> None:
    loss = made("margin", beta=0.7, nu=0.3, beta_of="class")
    term, weight = loss.penalty()["beta"]
    assert (term.item(), weight) == (pytest.approx(0.7), 0.3)
    (group,) = loss.param_groups()
    assert group.role == "margins"
    assert [p.shape for p in group.params] == [(C,)]
    (alone,) = made("margin", beta_of="all").param_groups()
    assert [p.shape for p in alone.params] == [(1,)]
