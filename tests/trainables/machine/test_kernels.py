"""By which library matrices are multiplied, and that it gives what the formula gives."""

from __future__ import annotations

import pytest
import torch

from tests.trainables.machine.onednn import there
from trainables import streams
from trainables.evaluation.scores import dots
from trainables.machine import kernels
from trainables.machine.kernels import by_onednn, onednn_is_quicker, product


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor on which oneDNN is the quicker."""
    monkeypatch.setattr(kernels, "onednn_is_quicker", lambda: True)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=streams.generator(0, "kernels"))


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
    monkeypatch.setattr(kernels, "processor", lambda: told)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    found = onednn_is_quicker.__wrapped__()
    assert found is (expected and hasattr(torch.ops.mkldnn, "_linear_pointwise"))


@there
@pytest.mark.parametrize(("rows", "others", "dims"), [(0, 40, 8), (1, 300, 64), (130, 257, 33)])
def test_the_product_is_that_of_the_formula(rows: int, others: int, dims: int) -> None:
    a, b, bias = numbers(rows, dims), numbers(others, dims), numbers(others)
    wanted = a.double() @ b.double().T
    made = product(a, b).double()
    torch.testing.assert_close(made, wanted, rtol=0, atol=1e-5 * dims**0.5)
    for x, y in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        found = product(x, y, bias).double()
        torch.testing.assert_close(found, wanted + bias, rtol=0, atol=1e-5 * dims**0.5)


@there
@pytest.mark.usefixtures("quick")
def test_only_large_ones_of_which_no_gradient_is_asked() -> None:
    a, b = numbers(9, 64), numbers(256, 64)
    assert by_onednn(a, b) and by_onednn(a[:0], b)
    assert not by_onednn(a, b[:255]), "a small one"
    assert not by_onednn(a.double(), b.double()) and not by_onednn(a.half(), b.half())
    learnt = a.clone().requires_grad_()
    assert not by_onednn(learnt, b) and dots(learnt, b).requires_grad
    with torch.no_grad():
        assert by_onednn(learnt, b)
    out = torch.empty(9 * 256)
    assert dots(a, b, out.view(9, 256)).data_ptr() == out.data_ptr()
    assert dots(a, b, out.view(9, 256)).equal(dots(a, b))
