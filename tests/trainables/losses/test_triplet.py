"""Triplet losses against loops and against pytorch-metric-learning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners as pml_miners
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor

from tests.oracles import pairs as oracles
from tests.trainables.losses.pair_cases import (
    CASES,
    batch,
    made,
    paired,
    same_value_and_gradients,
    value,
)
from trainables import streams
from trainables.losses import geometry
from trainables.losses.sampling import draw_negatives, inverse_density

SQUARED = {"triplet_l2sq": True, "triplet_l2": False}


@pytest.mark.parametrize("name", list(SQUARED))
@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("mining", ["all", "semihard", "semihard_all"])
@pytest.mark.parametrize("average", ["active", "mined"])
@pytest.mark.parametrize(("normalize", "margin"), [(True, 0.2), (False, 1.0)])
def test_by_loops(  # noqa: PLR0917
    name: str, case: str, mining: str, average: str, normalize: bool, margin: float
) -> None:
    loss = made(name, margin=margin, mining=mining, average=average, normalize=normalize)
    x, labels = batch(CASES[case])
    d = oracles.distances(x, squared=SQUARED[name], normalize=normalize)
    chosen = oracles.triplets(CASES[case], d, mining, margin)
    expected = oracles.triplet(chosen, d, margin, average, x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x])


def drawn(x: Tensor, labels: Tensor, *, normalize: bool = True) -> list[tuple[int, int, int]]:
    """The triplets that the loss draws: same weights, same stream."""
    pairs = paired(labels)
    plain = -geometry.score(x, x, geometry.Geometry("l2", normalize)).detach()
    weights = inverse_density(plain, x.shape[1], near=0.5, far=1.4)
    n = draw_negatives(weights, pairs.neg, streams.generator(0, "draws"))
    a, p = (pairs.pos * pairs.neg.any(1, keepdim=True)).nonzero(as_tuple=True)
    return list(zip(a.tolist(), p.tolist(), n[a, p].tolist(), strict=True))


@pytest.mark.parametrize("name", list(SQUARED))
@pytest.mark.parametrize("case", list(CASES))
def test_distance_weighted_by_loops(name: str, case: str) -> None:
    loss = made(name, margin=0.3, mining="distance_weighted")
    x, labels = batch(CASES[case])
    d = oracles.distances(x, squared=SQUARED[name], normalize=True)
    expected = oracles.triplet(drawn(x, labels), d, 0.3, "active", x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x])


def theirs(
    x: Tensor, classes: Tensor, mined: object, *, power: int, margin: float, mean: bool
) -> Tensor:
    reducer = {"reducer": MeanReducer()} if mean else {}
    distance = pml_distances.LpDistance(power=power)
    return pml.TripletMarginLoss(margin, distance=distance, **reducer)(x, classes, mined)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(SQUARED)),
    classes=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    margin=st.sampled_from([0.05, 0.2, 1.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    mining=st.sampled_from(["all", "semihard_all", "distance_weighted"]),
    mean=st.booleans(),
    duplicates=st.booleans(),
)
def test_as_in_pytorch_metric_learning(  # noqa: PLR0917
    name: str,
    classes: list[int],
    margin: float,
    scale: float,
    mining: str,
    mean: bool,
    duplicates: bool,
) -> None:
    """Same triplets, same average. Differs: with no triplet at all the library's value is 0
    as ours, but it has no gradient; "semihard" alone has no counterpart there."""
    power = 2 if SQUARED[name] else 1
    average = "mined" if mean else "active"
    loss = made(name, margin=margin, mining=mining, average=average)
    x, labels = batch([{c} for c in classes], duplicates=duplicates)
    x = (scale * x).detach().requires_grad_()
    exact = torch.tensor(classes)
    if mining == "semihard_all":
        distance = pml_distances.LpDistance(power=power)
        mined = pml_miners.TripletMarginMiner(margin, "semihard", distance=distance)(x, exact)
    elif mining == "distance_weighted":
        mined = tuple(
            torch.tensor(c, dtype=torch.int64) for c in zip(*drawn(x, labels), strict=True)
        )
    else:
        mined = None
    found = value(loss, x, labels)
    if mined == ():
        assert found.item() == 0
        return
    expected = theirs(x, exact, mined, power=power, margin=margin, mean=mean)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    if duplicates:
        return  # ties: each takes one of the sub-gradients
    (ours,) = torch.autograd.grad(found, x)
    (other,) = torch.autograd.grad(expected, x, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(ours * scale, other * scale, rtol=1e-6, atol=1e-8)


def test_leading_dimensions_are_averaged_each_over_its_own_triplets() -> None:
    x = torch.randn(3, 8, 4, dtype=torch.float64, generator=streams.generator(0, "many"))
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3])[:, None]
    for mining in ("all", "semihard", "semihard_all"):
        loss = made("triplet_l2", mining=mining)
        each = torch.stack([value(loss, part, labels) for part in x])
        torch.testing.assert_close(value(loss, x, labels), each.mean())


def test_float32_is_close_to_float64_on_a_large_batch() -> None:
    """The cumulated sums cancel; this is what is left in float32 of a batch of 480."""
    x = torch.randn(480, 16, dtype=torch.float64, generator=streams.generator(0, "large"))
    labels = (torch.arange(480) // 4)[:, None]
    for mining in ("all", "semihard_all"):
        loss = made("triplet_l2sq", mining=mining, classes=120)
        exact = value(loss, x, labels)
        assert value(loss.float(), x.float(), labels).item() == pytest.approx(
            exact.item(), rel=1e-5
        )


def test_sampling_off_the_sphere_is_refused() -> None:
    with pytest.raises(ValueError, match="unit sphere"):
        made("triplet_l2", mining="distance_weighted", normalize=False)
