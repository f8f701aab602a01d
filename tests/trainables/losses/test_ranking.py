"""Losses of ranks and SupCon against loops, exact metrics and pytorch-metric-learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as pml
from sklearn.metrics import average_precision_score
from torch import Tensor

from ablate.testing import losses as contract
from tests.oracles import pairs as loops
from tests.oracles import ranking as oracles
from tests.trainables.components import trial
from tests.trainables.losses.cases import (
    CASES,
    batch,
    made,
    paired,
    same_value_and_gradients,
    value,
)
from trainables import streams
from trainables.losses import smooth_ranks
from trainables.losses.recall_at_k import mix_similarities

OWN = pytest.mark.parametrize("own", [False, True])
BY_CASE = pytest.mark.parametrize("case", list(CASES))
BOUNDS = [(0.01, 100.0, 0.05, 0.5, None), (0.2, 3.0, 0.3, 0.0, 1.0), (0.05, 10.0, 0.0, 1.5, None)]


@BY_CASE
@OWN
@pytest.mark.parametrize(
    ("ks", "temperatures"), [((1, 2, 4, 8), (0.01, 1.0)), ((3, 1), (0.5, 0.2))]
)
def test_recall_at_k_by_loops(
    case: str, own: bool, ks: tuple[int, ...], temperatures: tuple[float, float]
) -> None:
    numbers = dict(zip(("temperature", "rank_temperature"), temperatures, strict=True))
    loss = made("recall_at_k", k=ks, include_query=own, **numbers)
    x, labels = batch(CASES[case])
    expected = oracles.recall_at_k(
        CASES[case], loops.cosines(x), (ks, *temperatures), own, x.new_zeros(())
    )
    same_value_and_gradients(value(loss, x, labels), expected, [x])


@pytest.mark.parametrize("case", ["plain", "one-image classes", "one class", "all differ"])
@OWN
def test_simix_by_virtual_embeddings(case: str, own: bool) -> None:
    """The same loss of a batch of images and virtual embeddings, which keep their length."""
    loss = made("recall_at_k", simix=True, include_query=own, temperature=0.2)
    x, labels = batch(CASES[case])
    shares = torch.rand(
        len(x), len(x), generator=streams.create_generator(0, "draws"), dtype=x.dtype
    )
    rows, sets = oracles.with_virtual_items(x, CASES[case], shares)
    expected = oracles.recall_at_k(
        sets,
        lambda i, j: (rows[i] * rows[j]).sum(),
        ((1, 2, 4, 8, 16), 0.2, 1.0),
        own,
        x.new_zeros(()),
    )
    same_value_and_gradients(value(loss, x, labels), expected, [x])


def test_a_perfect_positive_is_first_in_the_list_without_the_query_and_second_with_it() -> None:
    x = torch.eye(2, dtype=torch.float64).repeat_interleave(2, 0)
    labels = torch.tensor([[0], [0], [1], [1]])
    steep = {"k": (1,), "temperature": 1e-6, "rank_temperature": 0.1}
    first = value(made("recall_at_k", **steep), x, labels)
    second = value(made("recall_at_k", **steep, include_query=True), x, labels)
    assert first.item() == pytest.approx(0.5)  # 1 − σ(0)
    assert second.item() == pytest.approx(1 - torch.sigmoid(torch.tensor(-5.0)).item())


@BY_CASE
@OWN
@pytest.mark.parametrize("temperature", [0.01, 0.5])
def test_smooth_ap_by_loops(case: str, own: bool, temperature: float) -> None:
    loss = made("smooth_ap", temperature=temperature, include_query=own)
    x, labels = batch(CASES[case])
    expected = oracles.smooth_ap(CASES[case], loops.cosines(x), temperature, own, x.new_zeros(()))
    same_value_and_gradients(value(loss, x, labels), expected, [x])


@BY_CASE
@pytest.mark.parametrize("temperature", [0.05, 0.7])
def test_supcon_by_loops(case: str, temperature: float) -> None:
    x, labels = batch(CASES[case])
    expected = oracles.supcon(CASES[case], loops.cosines(x), temperature, x.new_zeros(()))
    found = value(made("supcon", temperature=temperature), x, labels)
    same_value_and_gradients(found, expected, [x])


@BY_CASE
@OWN
@pytest.mark.parametrize("numbers", BOUNDS)
@pytest.mark.parametrize(("average", "share"), [("active", 0.5), ("all", 0.2)])
def test_roadmap_by_loops(
    case: str, own: bool, numbers: tuple[Any, ...], average: str, share: float
) -> None:
    names = ("temperature", "slope", "delta", "start", "offset")
    options = dict(zip(names, numbers, strict=True))
    loss = made("roadmap", include_query=own, average=average, calibration=share, **options)
    x, labels = batch(CASES[case], duplicates=True)
    s, zero = loops.cosines(x), x.new_zeros(())
    expected = (1 - share) * oracles.sup_ap(CASES[case], s, numbers, own, zero)
    expected = expected + share * oracles.calibration(CASES[case], s, (0.9, 0.6), average, zero)
    same_value_and_gradients(value(loss, x, labels), expected, [x])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("average", ["active", "all"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_roadmap_of_equal_items_is_exact_in_float32(seed: int, average: str, share: float) -> None:
    """H(0) is 1, H⁻(0) is σ(0), and with a = 1 an equal positive is no active pair."""
    sets = [{i // 2 % 5} if i % 7 else {0} for i in range(33)]
    x = torch.randn(33, 77, generator=streams.create_generator(seed, "x"))
    x[1::2] = x[0:32:2]
    x[30], x[31] = x[4], x[8]
    slots = torch.tensor([sorted(each) for each in sets])
    numbers = (0.01, 100.0, 0.05, 0.5, None)
    options: dict[str, Any] = {"average": average, "calibration": share, "positive_margin": 1.0}
    s, zero = find_exact_cosines(x), x.new_zeros((), dtype=torch.float64)
    expected = (1 - share) * oracles.sup_ap(sets, s, numbers, False, zero)
    expected = expected + share * oracles.calibration(sets, s, (1.0, 0.6), average, zero)
    found = value(made("roadmap", **options), x, slots)
    assert found.item() == pytest.approx(expected.item(), rel=2e-5)


def find_exact_cosines(x: Tensor) -> Callable[[int, int], Tensor]:
    """Return cosines in float64, which are 1 for equal rows and equal for equal columns."""
    rows = torch.nn.functional.normalize(x.double(), dim=-1)
    first = [next(j for j in range(i + 1) if torch.equal(x[i], x[j])) for i in range(len(x))]
    one = x.new_ones((), dtype=torch.float64)
    return lambda i, j: one if first[i] == first[j] else rows[first[i]] @ rows[first[j]]


def test_smooth_ap_is_that_of_the_library() -> None:
    """On as many classes as images of each: version 2.9 groups the batch wrongly otherwise."""
    classes = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    x, labels = batch([{c} for c in classes])
    found = value(made("smooth_ap", include_query=True), x, labels)
    expected = pml.SmoothAPLoss()(x, torch.tensor(classes))  # in float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    gradients = [torch.autograd.grad(loss, x)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_steep_steps_give_the_exact_metric_and_sup_ap_bounds_it() -> None:
    sets = [{i % 4} for i in range(24)]
    x, labels = batch(sets, dim=3)
    s, pairs = torch.nn.functional.normalize(x.detach(), dim=-1), paired(labels)
    s = s @ s.T
    exact = [
        average_precision_score(pairs.pos[i][torch.arange(24) != i], s[i][torch.arange(24) != i])
        for i in range(24)
    ]
    loss = 1 - sum(exact) / 24
    assert 0.1 < loss < 0.9
    assert value(made("smooth_ap", temperature=1e-7), x, labels).item() == pytest.approx(loss)
    steep = value(made("recall_at_k", k=(1,), temperature=1e-7, rank_temperature=1e-3), x, labels)
    nearest = (s - 9 * torch.eye(24)).argmax(-1)
    misses = (pairs.pos.gather(-1, nearest[:, None]) == 0).double().mean().item()
    assert steep.item() == pytest.approx(1 - (1 - misses) / 2)  # σ(k − r) is 1/2 at r = k
    for temperature in (1e-3, 0.01, 0.1, 1.0):
        bound = value(made("roadmap", calibration=0, temperature=temperature), x, labels)
        assert bound.item() > loss


@pytest.mark.parametrize("name", ["recall_at_k", "smooth_ap", "roadmap"])
def test_blocks_of_rows_give_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with leading dimensions, which are divided too."""
    x, labels = batch(CASES["plain"])
    x = torch.stack([x, 2 * x.detach().flip(0)]).detach().requires_grad_()
    whole = value(made(name), x, labels)
    monkeypatch.setattr(smooth_ranks, "MOST_ENTRIES", 100)
    parts = value(made(name), x, labels)
    torch.testing.assert_close(parts, whole, rtol=1e-13, atol=0)
    (expected,), (found,) = (torch.autograd.grad(v, x) for v in (whole, parts))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ["recall_at_k", "smooth_ap", "roadmap"])
def test_float32_is_float64_to_rounding(name: str) -> None:
    """At temperatures of 0.01 most sigmoids saturate, and none may underflow to 0/0 or overflow."""
    x, labels = batch([{i // 4} for i in range(64)], dim=16)
    small = x.detach().float().requires_grad_()
    values = [value(made(name), each, labels) for each in (x, small)]
    assert values[1].item() == pytest.approx(values[0].item(), rel=1e-5)
    exact, found = (torch.autograd.grad(v, e)[0] for v, e in zip(values, (x, small), strict=True))
    assert (found - exact).norm() < 1e-3 * exact.norm()


def test_options_that_are_not_defaults_pass_all_checks_of_losses() -> None:
    contract.check({"name": "recall_at_k", "simix": True})
    contract.check({"name": "recall_at_k", "include_query": True, "k": [64]})
    contract.check({"name": "smooth_ap", "include_query": True, "temperature": 0.001})
    contract.check({"name": "roadmap", "offset": 1.44, "average": "all", "include_query": True})


@pytest.mark.parametrize("name", ["recall_at_k", "smooth_ap", "supcon", "roadmap"])
def test_batches_without_positives_are_refused(name: str) -> None:
    refusal = trial({"name": "plain"}, name, training={"batch_size": 8, "per_class": 1})
    assert f"training.per_class must be at least 2 with loss {name}" in str(refusal)


def test_simix_keeps_pairs_that_a_method_excludes() -> None:
    """Two samples of one image are neither positive nor negative; they are not mixed."""
    labels = torch.tensor([[0], [0], [0], [1]])
    pairs = paired(labels)
    pairs.pos[0, 1] = pairs.pos[1, 0] = 0
    _, extended = mix_similarities(torch.eye(4), pairs, None)
    assert extended.pos.shape == (6, 6)  # with the mixtures of 0 and 2 and of 1 and 2
    assert torch.equal(extended.pos[:4, :4], pairs.pos)
    assert extended.pos[4].tolist() == [1, 1, 1, 0, 0, 1]
    assert extended.neg[4].tolist() == [0, 0, 0, 1, 0, 0]
