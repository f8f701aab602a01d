"""Contrastive, Multi-Similarity and FastAP against loops and pytorch-metric-learning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners as pml_miners
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor

from tests.oracles import pairs as oracles
from tests.trainables.losses.pair_cases import (
    CASES,
    batch,
    made,
    same_value_and_gradients,
    value,
)
from trainables import streams

NAMES = ("contrastive", "multi_similarity", "fastap")
MINING = ["max_plus_epsilon", "none", "idml_printed"]


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("form", ["linear", "squared"])
@pytest.mark.parametrize("average", ["active", "all"])
@pytest.mark.parametrize(("normalize", "margin"), [(True, 1.0), (False, 2.5)])
def test_contrastive_by_loops(
    case: str, form: str, average: str, normalize: bool, margin: float
) -> None:
    loss = made(
        "contrastive",
        margin=margin,
        pos_margin=0.3,
        form=form,
        average=average,
        normalize=normalize,
    )
    x, labels = batch(CASES[case])
    d = oracles.distances(x, squared=False, normalize=normalize)
    expected = oracles.contrastive(CASES[case], d, (0.3, margin), (form, average), x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x])


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("mining", MINING)
@pytest.mark.parametrize("numbers", [(2.0, 50.0, 0.5, 0.1), (0.7, 3.0, -0.2, 0.6)])
def test_multi_similarity_by_loops(
    case: str, mining: str, numbers: tuple[float, float, float, float]
) -> None:
    options = dict(zip(("alpha", "beta", "threshold", "epsilon"), numbers, strict=True))
    loss = made("multi_similarity", mining=mining, **options)
    x, labels = batch(CASES[case])
    expected = oracles.multi_similarity(
        CASES[case], oracles.cosines(x), numbers, mining, x.new_zeros(())
    )
    same_value_and_gradients(value(loss, x, labels), expected, [x])


def test_the_minings_differ_where_they_should() -> None:
    x, labels = batch(CASES["plain"])
    found = {m: value(made("multi_similarity", mining=m), x, labels).item() for m in MINING}
    assert len(set(found.values())) == 3


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("bins", [1, 4, 10])
def test_fastap_by_loops(case: str, bins: int) -> None:
    loss = made("fastap", bins=bins)
    x, labels = batch(CASES[case])
    d = oracles.distances(x, squared=True, normalize=True)
    expected = oracles.fastap(CASES[case], d, bins, x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x])


def alike(name: str, found: Tensor, expected: Tensor, x: Tensor, *, gradients: bool) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9, msg=name)
    if gradients:
        (ours,) = torch.autograd.grad(found, x)
        (other,) = torch.autograd.grad(expected, x, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(ours, other, rtol=1e-6, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    classes=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    margins=st.sampled_from([(0.0, 1.0), (0.4, 0.7), (0.1, 1.9)]),
    mean=st.booleans(),
    duplicates=st.booleans(),
)
def test_contrastive_as_in_pytorch_metric_learning(
    classes: list[int], margins: tuple[float, float], mean: bool, duplicates: bool
) -> None:
    """The linear form; it has no squared one."""
    average = "all" if mean else "active"
    loss = made("contrastive", pos_margin=margins[0], margin=margins[1], average=average)
    reducer = {"reducer": MeanReducer()} if mean else {}
    theirs = pml.ContrastiveLoss(*margins, **reducer)
    x, labels = batch([{c} for c in classes], duplicates=duplicates)
    if duplicates and not mean and margins[0] == 0:
        return  # whether a positive at distance 0 counts as active is rounding there
    expected = theirs(x, torch.tensor(classes))
    # Duplicates: distance 0, of which each takes one of the sub-gradients.
    alike("contrastive", value(loss, x, labels), expected, x, gradients=not duplicates)


@settings(max_examples=40, deadline=None)
@given(
    classes=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    numbers=st.sampled_from([(2.0, 50.0, 0.5), (18.0, 64.0, 0.77), (0.5, 1.0, -0.5)]),
    epsilon=st.sampled_from([None, 0.0, 0.1, 0.5]),
)
def test_multi_similarity_as_in_pytorch_metric_learning(
    classes: list[int], numbers: tuple[float, float, float], epsilon: float | None
) -> None:
    """Loss and miner. Differs: where at most one pair of each kind is mined the library's value is
    0. The printed form of IDML has no counterpart."""
    options = dict(zip(("alpha", "beta", "threshold"), numbers, strict=True))
    mining = {"mining": "none"} if epsilon is None else {"epsilon": epsilon}
    x, labels = batch([{c} for c in classes])
    exact = torch.tensor(classes)
    mined = None if epsilon is None else pml_miners.MultiSimilarityMiner(epsilon)(x, exact)
    expected = pml.MultiSimilarityLoss(*numbers)(x, exact, mined)
    if mined is not None and all(len(indices) <= 1 for indices in mined):
        assert expected.item() == 0
        return
    found = value(made("multi_similarity", **options, **mining), x, labels)
    alike("multi_similarity", found, expected, x, gradients=True)


@settings(max_examples=40, deadline=None)
@given(
    classes=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    bins=st.sampled_from([1, 5, 10, 25]),
    duplicates=st.booleans(),
)
def test_fastap_as_in_pytorch_metric_learning(
    classes: list[int], bins: int, duplicates: bool
) -> None:
    x, labels = batch([{c} for c in classes], duplicates=duplicates)
    expected = pml.FastAPLoss(bins)(x, torch.tensor(classes))
    # Distance 0 is the centre of the first bin, where the count has a kink.
    alike(
        "fastap", value(made("fastap", bins=bins), x, labels), expected, x, gradients=not duplicates
    )


def test_perfect_rankings_have_no_fastap_loss() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])[:, None]
    assert value(made("fastap"), x, labels).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_leading_dimensions_are_averaged_each_by_itself(name: str) -> None:
    x = torch.randn(3, 8, 4, dtype=torch.float64, generator=streams.generator(0, "many"))
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3])[:, None]
    each = torch.stack([value(made(name), part, labels) for part in x])
    torch.testing.assert_close(value(made(name), x, labels), each.mean())
