"""DDML's terms against loops over the paper's equation; its options; its neutral form."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import ddml as oracle
from tests.trainables.methods import cases
from tests.trainables.methods.cases import LABELS, B, C, D, base, build_on, compare, noise, step, x
from trainables import streams
from trainables.core.loss_terms import EpochMetrics
from trainables.methods.ddml import DDML, DDMLState, log_softplus

SCALE = 23.0
built = partial(cases.built, "ddml")


def proxies_of(method: DDML) -> Tensor:
    return method._get_decoder_references().vectors


# A decoder's scale by the loss's defaults: 1/τ, α, s, λ; twice that of a squared distance, for unit
# vectors 2 − 2 cos. A loss without proxies gets a decoder, whose scale is 20.
TIED = {
    "normsoftmax": 20,
    "proxy_anchor": 32,
    "cosface": 64,
    "arcface": 64,
    "sphereface": 30,
    "proxy_nca": 2,
    "proxy_nca_pp": 18,
    "proxy_nca_nir": 32,
    "soft_triple": 20,
    "hypvit": 20,
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("loss", list(TIED))
def test_terms_by_loops_over_the_losses_own_proxies(loss: str, tied: bool) -> None:
    """Tables 1 and 2: "the existing decoders" of losses with proxies, an added one for HypViT."""
    method = built(loss, **({"logit_scale": "tied"} if tied else {}))
    scale = TIED[loss] if tied else SCALE
    own = method.loss.references()
    assert (method.decoder is None) == (own is not None)
    references = method._get_decoder_references()
    grouped = [p for group in method.param_groups("main") for p in group.params]
    assert sum(p is references.vectors for p in grouped) == 1
    state, terms = step(method)
    each = references.per_class

    def log_posterior(z: Tensor) -> Tensor:
        """[C]: the shares of all of a class's references, added up."""
        q = torch.stack(list(oracle.posterior(z, references.vectors, scale)))
        return q.view(C, each).sum(1).log()

    rows = list(enumerate(LABELS))
    agnostic = -sum(log_posterior(state.sample[n]).mean() for n, _ in rows) / B
    specific = -sum(log_posterior(state.specific_sample[n])[y] for n, y in rows) / B
    for name, expected in (("agnostic", agnostic), ("specific", specific)):
        assert {"head.weight"} < compare(method, terms[name].value, expected)
    split = oracle.split_closed(state.specific_mean, state.specific_std)
    compare(method, terms["split"].value, split)


# Without margins, and with one centre, these are a softmax of scaled cosines.
SOFTMAX: dict[str, dict[str, Any]] = {
    "normsoftmax": {"temperature": 0.1},
    "cosface": {"margin": 0.0, "scale": 10.0},
    "arcface": {"margin": 0.0, "scale": 10.0},
    "sphereface": {"margin": 1.0, "scale": 10.0},
    "proxy_nca": {"denominator": "all", "scale": 5.0},
    "proxy_nca_pp": {"temperature": 0.2},
    "soft_triple": {"centres": 1, "margin": 0.0, "scale": 10.0},
}


@pytest.mark.parametrize("loss", list(SOFTMAX))
def test_tied_is_the_scale_at_which_the_loss_is_a_softmax_of_cosines(loss: str) -> None:
    """So that −log q(y|μ) of a tied decoder is the metric loss itself."""
    method = build_on("ddml", base(loss, **SOFTMAX[loss]), logit_scale="tied")
    assert method.loss.logit_scale == 10
    state, terms = step(method)
    logits = method._compute_logits(state.query, method._get_decoder_references())
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS))
    torch.testing.assert_close(terms["metric"].value, expected)


def test_encoders_by_hand() -> None:
    """z = μ + σ ε with σ = softplus(raw − 5), and the same again from z."""
    method = built()
    features = x(scale=3)
    state, _ = step(method)
    draw = streams.create_generator(0, "method")
    first, second = (torch.randn(B, D, generator=draw, dtype=torch.float64) for _ in range(2))
    mean = features @ method.head.weight.T + method.head.bias
    sample = mean + oracle.std(features @ method.raw_std.weight.T + method.raw_std.bias) * first
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
    states = [step(method, None, x(scale=length))[0] for method in (exact, kaiming)]
    at_zero = torch.full((B, D), math.log1p(math.exp(-5)), dtype=torch.float64)
    torch.testing.assert_close(states[0].specific_std, at_zero)
    torch.testing.assert_close(states[0].sample - states[0].query, at_zero * noise(B, D))
    assert torch.equal(states[0].query, states[1].query)
    assert torch.equal(exact.specific.weight[:D], kaiming.specific.weight[:D])
    grown = kaiming.observed()["std"] > 2 * exact.observed()["std"]
    assert grown == (length >= 1)


def test_from_an_exact_start_every_std_trains() -> None:
    method = built(std_start="exact")
    _, terms = step(method)
    EpochMetrics(1, 0).add(terms).backward()
    assert (method.raw_std.weight.grad.abs().sum(1) > 0).all()
    assert (method.specific.weight.grad.abs().sum(1) > 0).all()


def test_observed_by_loops() -> None:
    method = built()
    state, _ = step(method)
    sigma = oracle.std(x(scale=3) @ method.raw_std.weight.T + method.raw_std.bias)
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
