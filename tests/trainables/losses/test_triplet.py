"""Triplet losses against loops and against pytorch-metric-learning."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.oracles import pairs as oracles
from tests.trainables.losses.cases import (
    CASES,
    batch,
    made,
    paired,
    same_value_and_gradients,
    value,
)
from trainables import streams
from trainables.losses import geometry
from trainables.losses.margin import draw_negatives, inverse_density

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
    n = draw_negatives(weights, pairs.neg, streams.create_generator(0, "draws"))
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


def test_float32_is_close_to_float64_on_a_large_batch() -> None:
    """The cumulated sums cancel; this is what is left in float32 of a batch of 480."""
    x = torch.randn(480, 16, dtype=torch.float64, generator=streams.create_generator(0, "large"))
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
