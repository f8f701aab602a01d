"""NIR's terms against loops over the paper's equations; its readings; its neutral form."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import losses as loss_oracle
from tests.oracles import nir as oracle
from tests.trainables.methods import cases
from tests.trainables.methods.cases import LABELS, B, C, D, TwoCentres, built, step, x
from trainables import streams
from trainables.core.loss_terms import EpochMetrics
from trainables.methods.nir import LIMIT, NIR, NIRState, exponential_with_tangent
from trainables.trial import TrialConfig

HALF = {"paper": 1.0, "code": 0.5}
compare = partial(cases.compare, least=4, of_size=1e-6)


def nir(loss: str = "proxy_anchor", **options: Any) -> NIR:
    method: NIR = built("nir", loss, **options)
    return method


def residual(method: NIR) -> oracle.Map:
    return lambda psi, rho: method.flow(psi[None], rho[None]).z[0]


def psi_of(method: NIR) -> list[Tensor]:
    return [oracle.unit(z) for z in method.head(x(scale=3))]


def nlls(method: NIR, classes: list[int]) -> list[Tensor]:
    """Of each sample with the proxy of the class that stands at its place."""
    proxies = method.loss.references().vectors  # type: ignore[union-attr]
    half = HALF[method.options.reading]
    return [
        oracle.nll(psi, oracle.unit(proxies[c]), residual(method), half)
        for psi, c in zip(psi_of(method), classes, strict=True)
    ]


def factor(method: NIR) -> float:
    t = float(method.options.temperature)
    return {"none": 1.0, "t": t, "d": t / D}[method.options.scale]


@pytest.mark.parametrize("loss", ["proxy_anchor", "normsoftmax"])
@pytest.mark.parametrize("reading", ["paper", "code"])
@pytest.mark.parametrize("f", ["exp", "softplus"])
@pytest.mark.parametrize(
    "scale",
    [
        {"scale": "none"},
        {"scale": "d"},
        {"scale": "d", "temperature": 3.0},
        {"scale": "t", "temperature": 0.3},
    ],
)
def test_the_regulariser_by_loops(loss: str, reading: str, f: str, scale: dict[str, Any]) -> None:
    method = nir(loss, reading=reading, f=f, **scale)
    _, terms = step(method)
    expected = oracle.regulariser(nlls(method, LABELS), reading, f, factor(method))
    compare(method, terms["nir"].value, expected, least=len(list(method.flow.parameters())) + 3)


@pytest.mark.parametrize("reading", ["paper", "code"])
@pytest.mark.parametrize("kind", ["difference", "separate"])
def test_negative_pairs_by_loops(kind: str, reading: str) -> None:
    method = nir(negative_pairs=kind, reading=reading)
    _, terms = step(method)
    draw = streams.create_generator(0, "method")
    further = torch.randint(1, C, (B,), generator=draw).tolist()
    others = [(y + k) % C for y, k in zip(LABELS, further, strict=True)]
    assert not any(y == other for y, other in zip(LABELS, others, strict=True))
    near, far = nlls(method, LABELS), nlls(method, others)
    if kind == "difference":
        both = [a - b for a, b in zip(near, far, strict=True)]
        expected = oracle.regulariser(both, reading, "exp", 1 / D)
    else:
        expected = oracle.regulariser(near, reading, "exp", 1 / D)
        expected = expected + oracle.regulariser([-x for x in far], reading, "exp", 1 / D)
    compare(method, terms["nir"].value, expected)


@pytest.mark.parametrize("centre", ["nearest", "mean"])
def test_condition_on_several_centres_by_loops(centre: str) -> None:
    method = nir("centres", centre=centre)
    _, terms = step(method)
    assert isinstance(method.loss, TwoCentres)
    values = []
    for psi, y in zip(psi_of(method), LABELS, strict=True):
        own = [method.loss.centres[2 * y], method.loss.centres[2 * y + 1]]
        rho = oracle.nearest(psi, own) if centre == "nearest" else oracle.mean(own)
        values.append(oracle.nll(psi, rho, residual(method), 1.0))
    compare(method, terms["nir"].value, oracle.regulariser(values, "paper", "exp", 1 / D))


def test_no_proxy_backprop() -> None:
    for given in (True, False):
        method = nir(proxy_backprop=given)
        _, terms = step(method)
        (gradient,) = torch.autograd.grad(
            terms["nir"].value, [method.loss.proxies], allow_unused=True, retain_graph=True
        )  # type: ignore[list-item]
        assert (gradient is not None) == given
        (head,) = torch.autograd.grad(terms["nir"].value, [method.head.weight])
        assert head.abs().sum() > 0


# Which of (proxies, flow, head) the synthetic term reaches.
REACHES = {
    "generate": (True, False, False),
    "match": (False, True, False),
    "both": (True, True, False),
}


@pytest.mark.parametrize("kind", list(REACHES))
def test_synthetic_samples_by_loops(kind: str) -> None:
    method = nir(synthetic=kind, omega=0.5, synthetic_weight=0.4)
    state, terms = step(method)
    assert isinstance(state, NIRState) and state.synthetic is not None
    assert terms["synthetic"].weight == pytest.approx(0.2)
    draw = streams.create_generator(0, "method")
    noise = torch.randn(B, D, generator=draw, dtype=torch.float64)
    proxies = method.loss.references().vectors  # type: ignore[union-attr]
    for n, y in enumerate(LABELS):  # the flow maps the sample back to its noise
        back = residual(method)(state.synthetic[n], oracle.unit(proxies[y]))
        torch.testing.assert_close(back, noise[n], rtol=1e-9, atol=1e-9)
    value = terms["synthetic"].value
    expected = loss_oracle.proxy_anchor(
        state.synthetic, proxies, [{y} for y in LABELS], alpha=32, margin=0.1
    )
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    leaves = [proxies, next(method.flow.parameters()), method.head.weight]
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    assert tuple(gradient is not None for gradient in found) == REACHES[kind]


def test_omega_weighs_the_metric_loss_with_its_penalties_and_not_the_regulariser() -> None:
    method = nir("centres", omega=0.25)
    method.loss.penalty = lambda: {"apart": (torch.tensor(2.0), 0.2)}  # type: ignore[method-assign]
    _, terms = step(method)
    weights = {name: term.weight for name, term in terms.items()}
    assert weights == {"metric": 0.25, "apart": 0.05, "nir": 1.0}
    _, plain = step(nir("centres", omega=1.0))
    assert torch.equal(plain["metric"].value, terms["metric"].value)


def test_omega_zero_leaves_the_regulariser_alone() -> None:
    """Without a metric term a limit has nothing to be relative to."""
    gradients = []
    for limit in (None, 1e-3):
        method = nir(omega=0.0, gradient_limit=limit)
        _, terms = step(method)
        total = EpochMetrics(1, 0).add(terms)
        assert torch.equal(total, terms["nir"].value)
        total.backward()
        gradients.append(method.head.weight.grad)
        assert method.loss.proxies.grad.abs().sum() > 0  # type: ignore[union-attr,operator]
        assert limit or set(method.observed()) == {"nll", "log_det", "nir_gradient"}
    assert torch.equal(*gradients)


def test_observed_gradients_are_those_of_the_embedding() -> None:
    method = nir(omega=0.3, weight=0.7)
    seen: list[Tensor] = []
    method.head.register_forward_hook(lambda module, given, z: seen.append(z))
    _, terms = step(method)
    parts = {
        "metric_gradient": 0.3 * terms["metric"].value,
        "nir_gradient": 0.7 * terms["nir"].value,
    }
    expected = {}
    for name, part in parts.items():
        (gradient,) = torch.autograd.grad(part, [seen[0]], retain_graph=True)
        expected[name] = math.sqrt(float((gradient * gradient).sum()))
    EpochMetrics(1, 0).add(terms).backward()
    found = method.observed()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-9)
    ratio = expected["nir_gradient"] / expected["metric_gradient"]
    assert float(found["nir_to_metric"]) == pytest.approx(ratio, rel=1e-9)
    mean = sum(x.item() for x in nlls(method, LABELS)) / B
    assert float(found["nll"]) == pytest.approx(mean, rel=1e-9)
    assert all(value.dim() == 0 and not value.requires_grad for value in found.values())


@pytest.mark.parametrize("limit", [1e-3, 1e6])
def test_a_limit_scales_all_of_the_regularisers_gradients_by_one_factor(limit: float) -> None:
    """1e6 is above the ratio, so that nothing is scaled."""
    options = {"omega": 0.3, "negative_pairs": "separate"}
    method = nir(**options, gradient_limit=limit)
    seen: list[Tensor] = []
    method.head.register_forward_hook(lambda module, given, z: seen.append(z))
    _, terms = step(method)
    EpochMetrics(1, 0).add(terms).backward()
    found = {name: p.grad for name, p in method.named_parameters()}
    observed = method.observed()

    free = nir(**options)
    embeddings: list[Tensor] = []
    free.head.register_forward_hook(lambda module, given, z: embeddings.append(z))
    _, apart = step(free)
    named = [("z", embeddings[0]), *free.named_parameters()]
    parts = [
        torch.autograd.grad(part, [p for _, p in named], retain_graph=True, allow_unused=True)
        for part in (0.3 * apart["metric"].value, apart["nir"].value)
    ]
    lengths = [part[0].norm().item() for part in parts]
    factor = min(1.0, limit * lengths[0] / lengths[1])
    assert (factor < 1) == (limit < 1)
    for (name, _), of_metric, of_nir in list(zip(named, *parts, strict=True))[1:]:
        expected = sum(
            scale * each for scale, each in ((1, of_metric), (factor, of_nir)) if each is not None
        )
        torch.testing.assert_close(found[name], expected, rtol=1e-6, atol=1e-12)
    assert float(observed["metric_gradient"]) == pytest.approx(lengths[0], rel=1e-9)
    assert float(observed["nir_gradient"]) == pytest.approx(factor * lengths[1], rel=1e-9)
    assert float(observed["nir_limited"]) == (limit < 1)
    assert float(observed["nir_to_metric"]) <= limit * (1 + 1e-9)


def test_a_limit_meets_a_gradient_that_is_not_finite() -> None:
    method = nir(gradient_limit=1.0)
    with torch.no_grad():
        for weight in method.flow.parameters():
            weight.mul_(1e200)
    _, terms = step(method)
    (1e300 * terms["nir"].value + terms["metric"].value).backward()
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    assert gradients and all(gradient.isfinite().all() for gradient in gradients)
    assert float(method.observed()["nir_limited"]) == 1


def test_exponents_beyond_the_limit_keep_a_finite_gradient() -> None:
    x = torch.tensor([-200.0, -1.0, 0.0, LIMIT, LIMIT + 7, 1e6], requires_grad=True)
    found = exponential_with_tangent(x)
    assert torch.equal(found[:4], x[:4].exp())
    steep = math.exp(LIMIT)
    assert found[4].item() == pytest.approx(8 * steep, rel=1e-6)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert gradient.square().isfinite().all()
    torch.testing.assert_close(gradient[1:4], x[1:4].exp())
    assert gradient[4:].tolist() == pytest.approx([steep, steep], rel=1e-6)


def test_losses_without_references_are_refused() -> None:
    with pytest.raises(ValidationError, match="proxies or centres, not triplet_l2"):
        TrialConfig(method={"name": "nir"}, loss={"name": "triplet_l2"})
    assert TrialConfig(method={"name": "nir"}, loss={"name": "soft_triple"})
