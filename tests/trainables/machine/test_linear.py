"""A linear layer by either library: values, gradients and theirs, and when it is which."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.trainables.core_trials import config
from trainables import streams
from trainables.core.epoch_metrics import EpochMetrics
from trainables.core.runtime import Runtime
from trainables.core.trainer import Trainer
from trainables.evaluation.scores import compute_dot_products
from trainables.machine import kernels
from trainables.machine.kernels import Linear, is_onednn_quicker, uses_onednn

has_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="torch has no oneDNN here",
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor on which oneDNN is the quicker."""
    monkeypatch.setattr(kernels, "is_onednn_quicker", lambda: True)


def numbers(*shape: int, name: str) -> Tensor:
    return torch.randn(*shape, generator=streams.create_generator(0, "linear", name))


def layer(
    features: int, out: int, kind: type[nn.Linear] = Linear, *, bias: bool = True
) -> nn.Linear:
    linear = kind(features, out, bias=bias)
    with torch.no_grad():
        for name, parameter in linear.named_parameters():
            parameter.copy_(numbers(*parameter.shape, name=name))
    return linear


@has_onednn
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("batch", "features", "out"), [(1, 130, 128), (7, 256, 64), (128, 1280, 256)]
)
def test_values_and_gradients_are_those_of_the_formula(
    batch: int, features: int, out: int, bias: bool
) -> None:
    linear = layer(features, out, bias=bias)
    x = numbers(batch, features, name="x").requires_grad_()
    g = numbers(batch, out, name="g")
    y = linear(x)
    assert type(y.grad_fn).__name__ == "_ProductBackward"
    results = [y, *torch.autograd.grad(y, [x, *linear.parameters()], g)]
    x64, g64, w64 = x.detach().double(), g.double(), linear.weight.detach().double()
    expected = [x64 @ w64.T, g64 @ w64, g64.T @ x64]
    if bias:
        expected[0] = expected[0] + linear.bias.detach().double()
        expected.append(g64.sum(0))
    for result, reference in zip(results, expected, strict=True):
        size = float(reference.abs().max())
        torch.testing.assert_close(result.detach().double(), reference, rtol=0, atol=3e-6 * size)


@has_onednn
@pytest.mark.usefixtures("quick")
def test_any_memory_layout_leading_dimensions_and_second_derivatives() -> None:
    ours, torchs = layer(256, 64), layer(256, 64, nn.Linear)
    columns, stack = numbers(256, 24, name="x"), numbers(7, 3, 256, name="y")
    expanded = numbers(1, 256, name="one").expand(5, 256)
    inputs = (columns.t(), columns.t()[::2], expanded, stack.transpose(0, 1), stack[:, None, ::2])
    for values in inputs:
        results = []
        for linear in (ours, torchs):
            x = values.detach().requires_grad_()
            y = linear(x)
            (slope,) = torch.autograd.grad((y * 0.1).tanh().sum(), x, create_graph=True)
            second = torch.autograd.grad((slope * slope).sum(), [x, *linear.parameters()])
            results.append((y, slope, *second))
        for one, other in zip(*results, strict=True):
            size = float(other.detach().abs().max())
            torch.testing.assert_close(one, other, rtol=0, atol=2e-5 * size)
    assert ours(stack[:0]).shape == (0, 3, 64)
    with torch.inference_mode():
        torch.testing.assert_close(ours(stack), torchs(stack), rtol=1e-4, atol=1e-4)


def test_elsewhere_it_is_torch_s_own_layer_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "is_onednn_quicker", lambda: False)
    ours, torchs, x = layer(256, 64), layer(256, 64, nn.Linear), numbers(9, 256, name="x")
    assert ours(x).equal(torchs(x)) and type(ours(x).grad_fn).__name__ == "AddmmBackward0"


@has_onednn
def test_a_step_is_the_same_by_both(
    drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its terms and its weights, within rounding."""
    ends = []
    for quicker in (False, True):
        monkeypatch.setattr(kernels, "is_onednn_quicker", lambda quicker=quicker: quicker)
        method = {"name": "nir", "flow": {"width": 512}}
        trial = config(drawn, method=method, embedding={"dim": 64}, optimizer={"name": "sgd"})
        trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
        trainer.network.enter_phase("main", trainer.parameters)
        trainer.trace = EpochMetrics(1, 0)
        trainer.step(trainer.plan_batches(0)[0], "main")
        weights = torch.cat([p.detach().flatten() for p in trainer.parameters])
        ends.append((trainer.trace.compute_means(), weights))
    (terms, weights), (other_terms, other_weights) = ends
    assert other_terms == pytest.approx(terms, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(weights, other_weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("capability", "maker", "family", "expected"),
    [
        ("AVX512", "AuthenticAMD", 26, True),
        ("AVX512", "AuthenticAMD", 25, False),
        ("AVX512", "GenuineIntel", 26, False),
        ("AVX2", "AuthenticAMD", 26, False),
    ],
)
def test_it_is_onednn_on_processors_that_were_measured(
    capability: str, maker: str, family: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    processor = f"x86_64\nvendor_id\t: {maker}\ncpu family\t: {family}\n"
    monkeypatch.setattr(kernels, "detect_processor", lambda: processor)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    is_quicker = is_onednn_quicker.__wrapped__()
    assert is_quicker is (expected and hasattr(torch.ops.mkldnn, "_linear_pointwise"))


@has_onednn
@pytest.mark.usefixtures("quick")
def test_only_large_ones_of_which_no_gradient_is_asked() -> None:
    a, b = numbers(9, 64, name="a"), numbers(256, 64, name="b")
    assert uses_onednn(a, b) and uses_onednn(a[:0], b)
    assert not uses_onednn(a, b[:255]), "a small one"
    assert not uses_onednn(a.double(), b.double()) and not uses_onednn(a.half(), b.half())
    learnt = a.clone().requires_grad_()
    assert not uses_onednn(learnt, b) and compute_dot_products(learnt, b).requires_grad
    out = compute_dot_products(a, b)
    torch.testing.assert_close(out.double(), a.double() @ b.double().T, rtol=0, atol=1e-4)
