"""DDML's terms against loops over the paper's equation; its options; its neutral form."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from tests.oracles import ddml as oracle
from tests.trainables.methods.ddml_cases import FEATURES, LABELS, B, C, D, built, step
from tests.trainables.methods.method_on import compare
from trainables import streams
from trainables.core.epoch_metrics import EpochMetrics
from trainables.methods.base import Progress
from trainables.methods.ddml import DDML, DDMLState, log_softplus

SCALE = 23.0


def proxies_of(method: DDML) -> Tensor:
    return method._get_decoder_references().vectors


@pytest.mark.parametrize("loss", ["normsoftmax", "proxy_anchor", "pair"])
def test_terms_by_loops(loss: str) -> None:
    method = built(loss=loss)
    state, terms = step(method)
    proxies = proxies_of(method)
    compare(method, terms["agnostic"].value, oracle.agnostic(state.sample, proxies, SCALE))
    compare(
        method,
        terms["specific"].value,
        oracle.specific(state.specific_sample, LABELS, proxies, SCALE),
    )
    compare(
        method,
        terms["split"].value,
        oracle.split_closed(state.specific_mean, state.specific_std),
    )


def test_encoders_by_hand() -> None:
    """z = μ + σ ε with σ = softplus(raw − 5), and the same again from z."""
    method = built()
    x = 3 * torch.randn(
        B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )
    state, _ = step(method)
    draw = streams.create_generator(0, "method")
    first, second = (torch.randn(B, D, generator=draw, dtype=torch.float64) for _ in range(2))
    mean = x @ method.head.weight.T + method.head.bias
    sample = mean + oracle.std(x @ method.raw_std.weight.T + method.raw_std.bias) * first
    both = sample @ method.specific.weight.T + method.specific.bias
    specific = both[:, :D] + oracle.std(both[:, D:]) * second
    torch.testing.assert_close(state.query, mean)
    torch.testing.assert_close(state.sample, sample)
    torch.testing.assert_close(state.specific_mean, both[:, :D])
    torch.testing.assert_close(state.specific_std, oracle.std(both[:, D:]))
    torch.testing.assert_close(state.specific_sample, specific)


def test_sampled_split_by_loops_and_its_mean_is_the_closed_form() -> None:
    method = built(split="sampled")
    state, terms = step(method)
    expected = oracle.split_sampled(state.specific_mean, state.specific_std, state.specific_sample)
    compare(method, terms["split"].value, expected)

    state = DDMLState(*(getattr(state, f.name).detach() for f in dataclasses.fields(state)))
    noise = torch.randn(
        40_000, B, D, dtype=torch.float64, generator=streams.create_generator(0, "many")
    )
    many = dataclasses.replace(
        state,
        specific_noise=noise,
        specific_sample=state.specific_mean + state.specific_std * noise,
    )
    closed = built()._compute_split(state)
    torch.testing.assert_close(method._compute_split(many), closed, rtol=2e-3, atol=0)


def test_the_printed_agnostic_term_is_constant_without_gradient() -> None:
    method = built(agnostic="printed")
    state, terms = step(method)
    value = terms["agnostic"].value
    expected = oracle.agnostic_printed(state.sample, proxies_of(method), SCALE)
    torch.testing.assert_close(value, expected)
    assert value.item() == pytest.approx(math.log(C), abs=1e-12)
    leaves = [method.head.weight, method.raw_std.weight, proxies_of(method)]
    for gradient in torch.autograd.grad(value, leaves):
        assert gradient.abs().max() < 1e-12
    other = built()
    (gradient,) = torch.autograd.grad(step(other)[1]["agnostic"].value, [other.head.weight])
    assert gradient.abs().max() > 1e-3


def test_readings_are_options() -> None:
    base, _ = step(built())
    assert torch.equal(base.query, step(built(metric_input="mean"))[0].query)
    sampled, _ = step(built(metric_input="sample"))
    assert torch.equal(sampled.query, base.sample)
    assert not torch.equal(sampled.query, base.query)
    method = built(specific_input="mean")
    from_mean, _ = step(method)
    both = from_mean.query @ method.specific.weight.T + method.specific.bias
    torch.testing.assert_close(from_mean.specific_mean, both[:, :D])
    assert not torch.equal(from_mean.specific_mean, base.specific_mean)
    method = built(specific_input="unit")
    from_unit, _ = step(method)
    sample = torch.stack([z / oracle.length(z) for z in from_unit.sample])
    both = sample @ method.specific.weight.T + method.specific.bias
    torch.testing.assert_close(from_unit.specific_mean, both[:, :D])


@pytest.mark.parametrize("length", [1e-3, 1.0, 80.0, 1e5])
def test_an_exact_start_of_std_at_any_length_of_the_features(length: float) -> None:
    """softplus(−5) for all images, of both encoders; as the layers start, it grows with the
    features instead. The means, and all that is drawn, are the same."""
    exact, kaiming = built(std_start="exact"), built()
    x = length * torch.randn(
        B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )
    states = [
        m(x, torch.tensor(LABELS)[:, None], Progress(), streams.create_generator(0, "method"))
        for m in (exact, kaiming)
    ]
    at_zero = torch.full((B, D), math.log1p(math.exp(-5)), dtype=torch.float64)
    torch.testing.assert_close(states[0].specific_std, at_zero)
    torch.testing.assert_close(states[0].sample - states[0].query, at_zero * noise())
    assert torch.equal(states[0].query, states[1].query)
    assert torch.equal(exact.specific.weight[:D], kaiming.specific.weight[:D])
    grown = kaiming.observed()["std"] > 2 * exact.observed()["std"]
    assert grown == (length >= 1)


def noise() -> Tensor:
    return torch.randn(B, D, generator=streams.create_generator(0, "method"), dtype=torch.float64)


def test_from_an_exact_start_every_std_trains() -> None:
    method = built(std_start="exact")
    _, terms = step(method)
    EpochMetrics(1, 0).add(terms).backward()
    assert (method.raw_std.weight.grad.abs().sum(1) > 0).all()
    assert (method.specific.weight.grad.abs().sum(1) > 0).all()


def test_observed_by_loops() -> None:
    method = built()
    state, _ = step(method)
    x = 3 * torch.randn(
        B, FEATURES, dtype=torch.float64, generator=streams.create_generator(0, "x")
    )
    sigma = oracle.std(x @ method.raw_std.weight.T + method.raw_std.bias)
    ratio = [oracle.length(s) / oracle.length(m) for s, m in zip(sigma, state.query, strict=True)]
    angle = [oracle.cosine(m, z) for m, z in zip(state.query, state.sample, strict=True)]
    seen = method.observed()
    torch.testing.assert_close(seen["std"], sigma.sum() / (B * D))
    torch.testing.assert_close(seen["std_to_mean"], sum(ratio) / B)
    torch.testing.assert_close(seen["mean_to_sample"], sum(angle) / B)
    assert not any(value.requires_grad for value in seen.values())


def test_log_std_below_underflow() -> None:
    x = torch.tensor([-1e4, -200.0, -20.5, -19.5, 0.0, 30.0], requires_grad=True)
    found = log_softplus(x, torch.nn.functional.softplus(x))
    expected = torch.log1p(torch.exp(x.double())).clamp_min(1e-300).log()
    torch.testing.assert_close(found[2:], expected[2:].float())
    assert found[:2].tolist() == [-1e4, -200.0]
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert gradient.isfinite().all()
    assert gradient[:3].tolist() == [1.0, 1.0, 1.0]
