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
from trainables.machine.kernels import Linear, is_onednn_quicker, onednn_product, uses_onednn

SIZES = [(1, 130, 128), (7, 256, 64), (128, 1280, 256), (128, 256, 512)]


there = pytest.mark.skipif(
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
    made = kind(features, out, bias=bias)
    with torch.no_grad():
        made.weight.copy_(numbers(out, features, name="weight"))
        if bias:
            made.bias.copy_(numbers(out, name="bias"))
    return made


def kernel(y: Tensor) -> str:
    return type(y.grad_fn).__name__


@there
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("batch", "features", "out"), SIZES)
def test_values_and_gradients_are_those_of_the_formula(
    batch: int, features: int, out: int, bias: bool
) -> None:
    made = layer(features, out, bias=bias)
    x = numbers(batch, features, name="x").requires_grad_()
    g = numbers(batch, out, name="g")
    y = made(x)
    assert kernel(y) == "_ProductBackward"
    inputs = [x, *made.parameters()]
    found = [y, *torch.autograd.grad(y, inputs, g)]
    x64, g64, w64 = x.detach().double(), g.double(), made.weight.detach().double()
    wanted = [x64 @ w64.T, g64 @ w64, g64.T @ x64]
    if bias:
        wanted[0] = wanted[0] + made.bias.detach().double()
        wanted.append(g64.sum(0))
    for one, other in zip(found, wanted, strict=True):
        size = float(other.abs().max())
        torch.testing.assert_close(one.detach().double(), other, rtol=0, atol=3e-6 * size)


@there
@pytest.mark.usefixtures("quick")
def test_inputs_and_gradients_in_any_memory_layout() -> None:
    made, plain = layer(256, 64), layer(256, 64, nn.Linear)
    whole = numbers(256, 24, name="x")
    for x in (whole.t(), whole.t()[::2], numbers(1, 256, name="one").expand(5, 256)):
        assert not x.is_contiguous()
        found, wanted = made(x), plain(x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        ours = torch.autograd.grad(found.sum(), made.weight)  # its gradient is one number, expanded
        torch.testing.assert_close(ours, torch.autograd.grad(wanted.sum(), plain.weight))
    assert made(x[:0]).shape == (0, 64)
    with torch.inference_mode():
        torch.testing.assert_close(made(whole.t()), plain(whole.t()), rtol=1e-4, atol=1e-4)


@there
@pytest.mark.usefixtures("quick")
def test_gradients_of_gradients() -> None:
    made, plain = layer(256, 64), layer(256, 64, nn.Linear)
    seen = []
    for each in (made, plain):
        x = numbers(9, 256, name="x").requires_grad_()
        (slope,) = torch.autograd.grad((each(x) * 0.1).tanh().sum(), x, create_graph=True)
        seen.append(torch.autograd.grad((slope * slope).sum(), [x, *each.parameters()]))
    for one, other in zip(*seen, strict=True):
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5 * size)


def test_elsewhere_it_is_torch_s_own_layer_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "is_onednn_quicker", lambda: False)
    made, plain, x = layer(256, 64), layer(256, 64, nn.Linear), numbers(9, 256, name="x")
    assert made(x).equal(plain(x)) and kernel(made(x)) == "AddmmBackward0"


@there
@pytest.mark.usefixtures("quick")
def test_leading_dimensions() -> None:
    made, plain = layer(256, 64), layer(256, 64, nn.Linear)
    x = numbers(7, 3, 256, name="x")
    for given in (x, x.transpose(0, 1), x[:, None, ::2]):
        seen = []
        for each in (made, plain):
            z = given.detach().requires_grad_()
            y = each(z)
            seen.append((y, *torch.autograd.grad(y.tanh().sum(), [z, *each.parameters()])))
        for one, other in zip(*seen, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert made(x[:0]).shape == (0, 3, 64)


@there
@pytest.mark.parametrize(
    "method",
    [{"name": "dvml"}, {"name": "nir", "flow": {"width": 512}}],
    ids=lambda method: method["name"],
)
def test_a_step_is_the_same_by_both(
    method: dict[str, str], drawn: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its terms and its weights, within rounding."""
    ends = []
    for quicker in (False, True):
        monkeypatch.setattr(kernels, "is_onednn_quicker", lambda quicker=quicker: quicker)
        trial = config(drawn, method=method, embedding={"dim": 64}, optimizer={"name": "sgd"})
        trainer = Trainer(trial, 0, Runtime("cpu", 1, shared_cache))
        trainer.network.enter("main", trainer.parameters)
        trainer.trace = EpochMetrics(1, 0)
        trainer.step(trainer.plan_batches(0)[0], "main")
        ends.append(
            (
                trainer.trace.compute_means(),
                torch.cat([p.detach().flatten() for p in trainer.parameters]),
            )
        )
    (terms, weights), (others, same) = ends
    assert others == pytest.approx(terms, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(weights, same, rtol=1e-4, atol=1e-5)


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
    told = f"x86_64\nvendor_id\t: {maker}\ncpu family\t: {family}\n"
    monkeypatch.setattr(kernels, "detect_processor", lambda: told)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    found = is_onednn_quicker.__wrapped__()
    assert found is (expected and hasattr(torch.ops.mkldnn, "_linear_pointwise"))


@there
@pytest.mark.parametrize(("rows", "others", "dims"), [(0, 40, 8), (1, 300, 64), (130, 257, 33)])
def test_the_product_is_that_of_the_formula(rows: int, others: int, dims: int) -> None:
    a, b, bias = (numbers(*n, name="kernels") for n in ((rows, dims), (others, dims), (others,)))
    wanted = a.double() @ b.double().T
    made = onednn_product(a, b).double()
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-5 * dims**0.5)
    for x, y in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        found = onednn_product(x, y, bias).double()
        torch.testing.assert_close(found, wanted + bias, rtol=0, atol=1e-5 * dims**0.5)


@there
@pytest.mark.usefixtures("quick")
def test_only_large_ones_of_which_no_gradient_is_asked() -> None:
    a, b = numbers(9, 64, name="a"), numbers(256, 64, name="b")
    assert uses_onednn(a, b) and uses_onednn(a[:0], b)
    assert not uses_onednn(a, b[:255]), "a small one"
    assert not uses_onednn(a.double(), b.double()) and not uses_onednn(a.half(), b.half())
    learnt = a.clone().requires_grad_()
    assert not uses_onednn(learnt, b) and compute_dot_products(learnt, b).requires_grad
    with torch.no_grad():
        assert uses_onednn(learnt, b)
    out = torch.empty(9 * 256)
    assert compute_dot_products(a, b, out.view(9, 256)).data_ptr() == out.data_ptr()
    assert compute_dot_products(a, b, out.view(9, 256)).equal(compute_dot_products(a, b))
