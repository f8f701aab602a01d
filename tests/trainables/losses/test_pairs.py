"""Contrastive, Multi-Similarity and FastAP against loops and pytorch-metric-learning."""

from __future__ import annotations

import pytest

from tests.oracles import pairs as oracles
from tests.trainables.losses.cases import (
    CASES,
    batch,
    made,
    same_value_and_gradients,
    value,
)

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


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("bins", [1, 4, 10])
def test_fastap_by_loops(case: str, bins: int) -> None:
    loss = made("fastap", bins=bins)
    x, labels = batch(CASES[case])
    d = oracles.distances(x, squared=True, normalize=True)
    expected = oracles.fastap(CASES[case], d, bins, x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x])
