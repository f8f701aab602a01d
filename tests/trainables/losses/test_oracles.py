"""Values and gradients of the losses: against loops, against another library, at extremes."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from tests.oracles import losses as oracles
from trainables import streams
from trainables.losses import geometry
from trainables.losses.base import LOSSES, Loss, make_pairs
from trainables.losses.normsoftmax import NormSoftmax
from trainables.losses.proxy_anchor import ProxyAnchor

C, D = 5, 4


def made(name: str, *, classes: int = C, dim: int = D, **options: object) -> Loss:
    cls = LOSSES[name]
    with streams.seeded(3, "loss"):
        return cls(cls.Config(name=name, **options), classes=classes, dim=dim)


def value(loss: Loss, x: Tensor, labels: Tensor) -> Tensor:
    references = loss.references()
    assert references is not None
    pairs = make_pairs(labels, references.labels)
    return loss(geometry.score(x, references.vectors, loss.geometry), pairs)


def same_value_and_gradients(found: Tensor, expected: Tensor, leaves: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    ours = torch.autograd.grad(found, leaves)
    theirs = torch.autograd.grad(expected, leaves)
    for mine, loops in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, loops, rtol=1e-6, atol=1e-10)


def batch(sets: list[set[int]]) -> tuple[Tensor, Tensor]:
    x = torch.randn(len(sets), D, dtype=torch.float64, generator=streams.generator(0, "x"))
    slots = torch.tensor([sorted(s) + [-1] * (2 - len(s)) for s in sets])
    return x.requires_grad_(), slots


LABELS = [
    pytest.param([{0}, {0}, {1}, {3}, {3}, {3}], id="plain"),
    pytest.param([{0, 1}, {1}, {2, 4}, {2}, {0}, {3, 4}], id="sets"),
    pytest.param([{2}, {2}, {2}], id="one class"),
    pytest.param([{0}, {4}], id="batch of two"),
]


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("alpha", [1.0, 32.0, 64.0])
def test_proxy_anchor_by_loops(sets: list[set[int]], alpha: float) -> None:
    loss = made("proxy_anchor", alpha=alpha, margin=0.2).double()
    x, labels = batch(sets)
    expected = oracles.proxy_anchor(x, loss.proxies, sets, alpha, 0.2)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.proxies])


@pytest.mark.parametrize("sets", LABELS)
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_normsoftmax_by_loops(sets: list[set[int]], temperature: float) -> None:
    loss = made("normsoftmax", temperature=temperature).double()
    x, labels = batch(sets)
    expected = oracles.normsoftmax(x, loss.weights, sets, temperature)
    same_value_and_gradients(value(loss, x, labels), expected, [x, loss.weights])


def test_proxy_anchor_as_in_pytorch_metric_learning() -> None:
    loss, labels = made("proxy_anchor").double(), torch.tensor([0, 0, 1, 3, 3, 3])
    x, _ = batch([{0}] * 6)
    theirs = pml.ProxyAnchorLoss(C, D, margin=0.1, alpha=32).double()
    theirs.proxies = loss.proxies
    same_value_and_gradients(value(loss, x, labels), theirs(x, labels), [x, loss.proxies])


def test_normsoftmax_as_in_pytorch_metric_learning() -> None:
    loss, labels = made("normsoftmax").double(), torch.tensor([0, 0, 1, 3, 3, 3])
    x, _ = batch([{0}] * 6)
    theirs = pml.NormalizedSoftmaxLoss(C, D, temperature=0.05).double()
    theirs.W = torch.nn.Parameter(loss.weights.detach().T.clone())
    found, expected = value(loss, x, labels), theirs(x, labels)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    ours = torch.autograd.grad(found, [x, loss.weights])
    other = torch.autograd.grad(expected, [x, theirs.W])
    torch.testing.assert_close(ours[0], other[0], rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(ours[1], other[1].T, rtol=1e-6, atol=1e-10)


def test_proxies_without_a_positive_pull_nothing() -> None:
    loss = made("proxy_anchor")
    x = torch.randn(4, D, generator=streams.generator(0, "x"))
    labels = torch.tensor([0, 0, 1, 1])
    alone = made("proxy_anchor", classes=2)
    with torch.no_grad():
        alone.proxies.copy_(loss.proxies[:2])
    x.requires_grad_()
    positives = []
    for each in (loss, alone):
        pairs = make_pairs(labels, each.references().labels)
        quiet = make_pairs(labels, each.references().labels)
        quiet.neg.zero_()
        assert pairs.neg.any()
        s = geometry.score(x, each.proxies, each.geometry)
        positives.append(each(s, quiet))
    torch.testing.assert_close(positives[0], positives[1])


@pytest.mark.parametrize("name", ["proxy_anchor", "normsoftmax"])
@pytest.mark.parametrize("case", ["equal", "one class", "two", "bfloat16", "zero", "many classes"])
def test_extremes_are_finite(name: str, case: str) -> None:
    options = {"alpha": 64.0} if name == "proxy_anchor" else {"temperature": 0.01}
    classes = 11_318 if case == "many classes" else C
    loss = made(name, classes=classes, **options)
    x = torch.randn(6, D, generator=streams.generator(0, "x"))
    labels = torch.tensor([0, 1, 2, 3, 4, 4])
    if case == "equal":
        x = torch.ones(6, D)
    elif case == "one class":
        labels = torch.zeros(6, dtype=torch.int64)
    elif case == "two":
        x, labels = x[:2], labels[:2]
    elif case == "bfloat16":
        x = x.bfloat16().float()
    elif case == "zero":
        x = torch.zeros(6, D)
    x.requires_grad_()
    found = value(loss, x, labels)
    found.backward()
    assert found.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for parameter in loss.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", ["proxy_anchor", "normsoftmax"])
def test_leading_dimensions_are_meaned(name: str) -> None:
    loss = made(name)
    x = torch.randn(3, 6, D, generator=streams.generator(0, "x"))
    labels = torch.tensor([0, 0, 1, 2, 3, 3])
    each = torch.stack([value(loss, part, labels) for part in x])
    torch.testing.assert_close(value(loss, x, labels), each.mean())


@pytest.mark.parametrize("name", ["proxy_anchor", "normsoftmax"])
def test_hyperparameters_may_be_tensors(name: str) -> None:
    loss, other = made(name), made(name)
    x, labels = torch.randn(4, D, generator=streams.generator(0, "x")), torch.tensor([0, 0, 1, 2])
    if isinstance(other, ProxyAnchor):
        other.alpha, other.margin = torch.tensor(32.0), torch.tensor(0.1)
    assert isinstance(other, ProxyAnchor | NormSoftmax)
    if isinstance(other, NormSoftmax):
        other.temperature = torch.tensor(0.05)
    torch.testing.assert_close(value(other, x, labels), value(loss, x, labels))


def test_initial_values() -> None:
    """Kaiming-normal with fan-out: variance 2/C. U(−1/√D, 1/√D): variance 1/(3D)."""
    proxies = made("proxy_anchor", classes=400, dim=300).proxies
    assert proxies.var().item() == pytest.approx(2 / 400, rel=0.02)
    weights = made("normsoftmax", classes=400, dim=300).weights
    assert weights.var().item() == pytest.approx(1 / 900, rel=0.02)
    assert weights.abs().max().item() <= 300**-0.5
