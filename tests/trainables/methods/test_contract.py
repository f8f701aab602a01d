"""What every method with every loss must do, over the registries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.testing import methods
from tests.trainables.components import SMALL_METHODS, loss_options, method_options
from tests.trainables.support import mark_slow_pairs
from trainables import streams
from trainables.config.network import EmbeddingConfig
from trainables.core.identity import compute_config_hash
from trainables.losses.base import LOSSES, ParamGroup
from trainables.methods.base import METHODS, Method, Progress
from trainables.methods.head import build_linear_head
from trainables.methods.plain import Plain
from trainables.trial import TrialConfig, list_trained_roles
from trainables.words.errors import ConfigError

FEATURES, D = methods.FEATURES, methods.D

# A flow makes eight points ever sharper peaks of its density: at a larger step it falls off them.
# DetReg's twelve layers are thrown out of reach by larger ones.
RATES = {"nir": 3e-4, "detreg": 1e-3}


# Smaller than by default, where that takes time.
SMALL: dict[str, dict[str, Any]] = {
    "nir": {"flow": {"depth": 4, "width": 32}},
    "detreg": {"flow": {"depth": 4, "width": 32}},
    "dvml": {"samples": 4, "hidden": 32},
    "idml": {"uncertainty_dim": 32},
    # Its terms, of other triplets in each step, fall by a tenth in no sixty steps.
    "hier": {**SMALL_METHODS["hier"], "weight": 0.05},
}


def small(method: str) -> dict[str, Any]:
    return {"name": method, **SMALL.get(method, {})}


def takes(method: Any, loss: str) -> bool:
    return methods.find_refusal(method, loss_options(loss)) is None


pairs = pytest.mark.parametrize(
    ("method", "loss"), mark_slow_pairs(list(METHODS), list(LOSSES), takes)
)


@pairs
def test_steps_and_every_parameter_gets_a_gradient(method: str, loss: str) -> None:
    methods.check_step(small(method), loss_options(loss))


@pairs
def test_training_lowers_the_loss(method: str, loss: str) -> None:
    methods.check_lowers_loss(small(method), loss_options(loss), rate=RATES.get(method, 1e-2))


@pairs
def test_embeds_alike_and_initialises_alike(method: str, loss: str) -> None:
    methods.check_determinism(small(method), loss_options(loss))


@pairs
@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(1, 5).map(lambda n: 2 * n),
    scale=st.sampled_from(methods.SCALES),
    equal=st.booleans(),
    low_precision=st.booleans(),
)
def test_any_batch_is_finite(  # noqa: PLR0917
    method: str, loss: str, batch: int, scale: float, equal: bool, low_precision: bool
) -> None:
    methods.check_finite(
        small(method),
        loss_options(loss),
        batch=batch,
        scale=scale,
        equal=equal,
        low_precision=low_precision,
    )


# Further options under which a method is the plain loss.
NEUTRAL = [
    *({**method_options(name), **METHODS[name].NEUTRAL} for name in METHODS),
    {"name": "idml", "metric": "plain", "mixing": "none"},
    {
        "name": "detreg",
        **METHODS["detreg"].NEUTRAL,
        "flow": {"depth": 12, "width": 8, "identity": True},
    },
    {
        "name": "detreg",
        **METHODS["detreg"].NEUTRAL,
        "dueling": True,
        "second_metric": False,
        "lambda2": 0.0,
    },
]


@pytest.mark.parametrize(("options", "loss"), mark_slow_pairs(NEUTRAL, list(LOSSES), takes))
def test_neutral_is_the_plain_loss_bit_for_bit(options: dict[str, Any], loss: str) -> None:
    """The terms with their weights, gradients, and embeddings; IDML by its τ within 1e-6."""
    methods.check_neutral_options(options["name"])
    x, labels = methods.draw_features(8), (torch.arange(8) // 2 % methods.C)[:, None]
    found = []
    for component in ({"name": "plain"}, options):
        method = methods.build_seeded_method(component, loss_options(loss))
        state = method(x, labels, Progress(), streams.create_generator(0, "method"))
        terms = method.terms(state, labels, Progress(), streams.create_generator(0, "loss"))
        # Tensors as weights: nothing is left out of the graph, unlike what the core does.
        total = sum(torch.as_tensor(term.weight) * term.value for term in terms.values())
        total.backward()
        own = [method.head.weight, method.head.bias, *method.loss.parameters()]
        grads = [p.grad for p in own if p.grad is not None]
        found.append([total, method.embedding_of(state.query), *grads])
        if method.loss.retrieval == method.loss.geometry and method.loss.geometry.clip is None:
            found[-1].append(method.embed(x))  # else DetReg leaves length and clip to the score
    for plain, same in zip(*found, strict=True):
        torch.testing.assert_close(same, plain, rtol=1e-5, atol=1e-6)
        assert torch.equal(same, plain) or "tau" in options


@pytest.mark.parametrize("method", ["ddml", "dvml", "nir", "pel", "idml", "hier", "anti_collapse"])
def test_retrieval_uses_the_plain_head(method: str) -> None:
    plain, other = (methods.build_seeded_method(name, "proxy_anchor") for name in ("plain", method))
    x = methods.draw_features(30)
    assert torch.equal(other.embed(x), plain.embed(x))
    for each in (plain, other):
        each.fit(x)
    assert torch.equal(other.embed(x), plain.embed(x))


@pytest.mark.parametrize(
    ("name", "options", "default"),
    [
        ("ddml", {"std_start": "exact"}, {"std_start": "kaiming"}),
        ("dvml", {"kl_over": "mean"}, {"kl_over": "sum"}),
        ("detreg", {"input": "raw"}, {"input": "unit"}),
        ("idml", {"objective": "joint"}, {"objective": "separate"}),
        ("pel", {"objective": "joint"}, {"objective": "separate"}),
    ],
)
def test_a_later_default_written_out_is_the_same_trial(
    name: str, options: dict[str, Any], default: dict[str, Any]
) -> None:
    plain, written, other = (
        compute_config_hash(TrialConfig(method={"name": name, **given}), "data")
        for given in ({}, default, options)
    )
    assert plain == written != other


def test_all_that_another_package_would_call() -> None:
    assert methods.check("ddml", "normsoftmax") is None
    refused = methods.check("nir", "multi_similarity")
    assert refused is not None and "nir needs a loss with proxies" in refused


@pytest.mark.parametrize("attribute", Method.REQUIRED)
def test_an_incomplete_method_is_refused(attribute: str) -> None:
    given = {"Config": Plain.Config, "REVISION": 1, "NEUTRAL": {}}
    del given[attribute]
    with pytest.raises(ConfigError, match=f"methods.mine lacks {attribute}"):
        METHODS.register("mine")(type("Mine", (Method,), given))


def test_a_config_of_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`name` is 'plain'.* Write `name: Literal"):
        METHODS.register("mine")(type("Mine", (Plain,), {}))


@pytest.mark.parametrize(("role", "words"), [(None, "lacks loss"), ("prox", "'prox'")])
def test_parameters_that_would_not_train_are_refused_in_the_plan(
    monkeypatch: pytest.MonkeyPatch, role: Any, words: str
) -> None:
    monkeypatch.setattr(
        LOSSES["normsoftmax"],
        "param_groups",
        lambda self: [ParamGroup(role, list(self.parameters()))] if role else [],
    )
    options = {"name": "normsoftmax", "temperature": 0.07 if role else 0.08}  # new to the cache
    with pytest.raises(ConfigError, match=words):
        list_trained_roles(TrialConfig(loss=options))


def test_a_broken_method_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the checks cannot pass by looking at nothing."""
    monkeypatch.setattr(Plain, "param_groups", lambda self, phase: [])
    with pytest.raises(AssertionError, match="a parameter is in no group"):
        methods.check("plain", "normsoftmax")


def head(init: str, dim: int = D) -> torch.nn.Linear:
    with streams.seed_global_generator(0, "head"):
        return build_linear_head(FEATURES, EmbeddingConfig(dim=dim, init=init))


def test_head_starts() -> None:
    with streams.seed_global_generator(0, "head"):
        wide = build_linear_head(500, EmbeddingConfig(dim=300))
    assert wide.weight.var().item() == pytest.approx(2 / 300, rel=0.02)
    for init in ("kaiming", "orthogonal"):
        assert not head(init).bias.any()
    w = head("orthogonal").weight
    torch.testing.assert_close(w @ w.T, torch.eye(D))


def fit_head(x: torch.Tensor) -> torch.nn.Linear:
    """Return the head of a plain method with init pca, fitted to features."""
    loss = LOSSES["normsoftmax"](LOSSES["normsoftmax"].Config(), classes=3, dim=D)
    embedding = EmbeddingConfig(dim=D, init="pca")
    method = Plain(Plain.Config(), features=FEATURES, embedding=embedding, loss=loss, classes=3)
    method.fit(x)
    return method.head


def test_pca_is_exact_ordered_and_sign_fixed() -> None:
    x = torch.randn(40, FEATURES, generator=streams.create_generator(0, "x"))
    x = x * torch.arange(1, FEATURES + 1) + 3
    linear = fit_head(x)
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
    assert torch.equal(fit_head(x).weight, linear.weight)


def test_pca_with_too_many_dimensions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"embedding\.dim: init pca finds at most 9 directions"):
        head("pca", FEATURES + 1)
