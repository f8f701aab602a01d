"""What every method with every loss must do, over the registries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainables.components import trial
from trainables import streams
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS, Batch, Method, Progress
from trainables.methods.head import fit_pca, linear_head
from trainables.model import build_method
from trainables.sections import EmbeddingConfig
from trainables.trace import Trace

FEATURES, D, C = 9, 6, 4
PAIRS = [(method, loss) for method in METHODS for loss in LOSSES]

# A flow makes eight points ever sharper peaks of its density: at a larger step it falls off them.
# DetReg's twelve layers are thrown out of reach by larger ones.
RATES = {"nir": 3e-4, "detreg": 1e-3}


def built(method: str, loss: str, **embedding: Any) -> Method:
    config = trial({"name": method}, loss, embedding={"dim": D, **embedding})
    if isinstance(config, str):
        pytest.skip(f"refused: {config}")
    return build_method(config, features=FEATURES, classes=C, seed=5)


def labels(batch: int) -> torch.Tensor:
    return (torch.arange(batch) // 2 % C)[:, None]


def one_step(method: Method, x: torch.Tensor, step: int = 0) -> torch.Tensor:
    progress = Progress(step=step)
    batch = method.prepare(Batch(x, labels(len(x))), streams.generator(0, "prepare", step))
    state = method(batch.inputs, batch.labels, progress, streams.generator(0, "method", step))
    terms = method.terms(state, batch.labels, progress, streams.generator(0, "loss", step))
    assert "metric" in terms
    for term in terms.values():
        assert term.value.shape == ()
    return Trace(1, 0).add(terms)


@pytest.mark.parametrize(("method", "loss"), PAIRS)
def test_steps_and_every_parameter_gets_a_gradient(method: str, loss: str) -> None:
    built_method = built(method, loss)
    x = torch.randn(8, FEATURES, generator=streams.generator(0, "x"))
    one_step(built_method, x).backward()
    grouped = [p for group in built_method.param_groups("main") for p in group.params]
    assert len({id(p) for p in grouped}) == len(grouped), "a parameter in two groups"
    assert {id(p) for p in grouped} == {id(p) for p in built_method.parameters()}
    for name, parameter in built_method.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(("method", "loss"), PAIRS)
def test_training_lowers_the_loss(method: str, loss: str) -> None:
    built_method = built(method, loss)
    x = torch.randn(8, FEATURES, generator=streams.generator(0, "x"))
    optimiser = torch.optim.Adam(built_method.parameters(), lr=RATES.get(method, 1e-2))
    values = []
    for step in range(60):
        optimiser.zero_grad()
        total = one_step(built_method, x, step)
        total.backward()
        optimiser.step()
        values.append(total.item())
    assert min(values[-5:]) < 0.9 * values[0]


@pytest.mark.parametrize(("method", "loss"), PAIRS)
def test_embeds_alike_and_initialises_alike(method: str, loss: str) -> None:
    first, second = built(method, loss).eval(), built(method, loss).eval()
    x = torch.randn(5, FEATURES, generator=streams.generator(0, "x"))
    z = first.embed(x)
    assert torch.equal(z, first.embed(x))
    assert torch.equal(z, second.embed(x))
    score = first.retrieval_score(z, z, first.loss.geometry)
    assert score.shape == (5, 5)
    assert torch.equal(score.argmax(1), torch.arange(5))


@pytest.mark.parametrize(("method", "loss"), PAIRS)
@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(1, 5).map(lambda n: 2 * n),
    scale=st.sampled_from([0.0, 1e-4, 1.0, 1e4]),
    equal=st.booleans(),
    low_precision=st.booleans(),
)
def test_any_batch_is_finite(  # noqa: PLR0917
    method: str, loss: str, batch: int, scale: float, equal: bool, low_precision: bool
) -> None:
    built_method = built(method, loss)
    x = scale * torch.randn(batch, FEATURES, generator=streams.generator(0, "x"))
    if equal:
        x = x[:1].expand(batch, -1)
    if low_precision:
        x = x.bfloat16().float()
    total = one_step(built_method, x)
    total.backward()
    assert total.isfinite()
    for name, parameter in built_method.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("method", list(METHODS))
def test_neutral_names_real_options(method: str) -> None:
    cls = METHODS[method]
    config = cls.Config(**cls.NEUTRAL)
    assert {key: getattr(config, key) for key in cls.NEUTRAL} == cls.NEUTRAL


def head(init: str, dim: int = D) -> torch.nn.Linear:
    with streams.seeded(0, "head"):
        return linear_head(FEATURES, EmbeddingConfig(dim=dim, init=init))


def test_head_starts() -> None:
    with streams.seeded(0, "head"):
        wide = linear_head(500, EmbeddingConfig(dim=300))
    assert wide.weight.var().item() == pytest.approx(2 / 300, rel=0.02)
    for init in ("kaiming", "orthogonal"):
        assert not head(init).bias.any()
    w = head("orthogonal").weight
    torch.testing.assert_close(w @ w.T, torch.eye(D))


def test_pca_is_exact_ordered_and_sign_fixed() -> None:
    x = torch.randn(40, FEATURES, generator=streams.generator(0, "x"))
    x = x * torch.arange(1, FEATURES + 1) + 3
    linear = head("pca")
    fit_pca(linear, x)
    z = linear(x)
    assert z.mean(0).abs().max() < 1e-5
    covariance = (z.T @ z).double()
    _, singular, vectors = torch.linalg.svd((x - x.mean(0)).double(), full_matrices=False)
    expected = torch.diag(singular[:D].square())
    torch.testing.assert_close(covariance, expected, rtol=1e-4, atol=1e-2)
    overlap = (linear.weight.double() * vectors[:D]).sum(1).abs()
    torch.testing.assert_close(overlap, torch.ones(D, dtype=torch.float64), rtol=1e-6, atol=0)
    peaks = linear.weight.gather(1, linear.weight.abs().argmax(1, keepdim=True))
    assert (peaks > 0).all()
    again = head("pca")
    fit_pca(again, x)
    assert torch.equal(again.weight, linear.weight)


def test_pca_with_too_many_dimensions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"embedding\.dim: found 10 with init pca"):
        head("pca", FEATURES + 1)
