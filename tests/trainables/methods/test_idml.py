"""IDML's score against loops over the paper's equations; its gradients; its neutral form."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import idml as oracle
from tests.trainables.methods.cases import (
    GAMMA,
    GEOMETRIES,
    SETS,
    TAU,
    B,
    C,
    D,
    U,
    base,
    build_on,
    compare_all,
    metric,
    pair_loss,
    slots,
    x,
)
from trainables import streams
from trainables.losses import geometry as geometries
from trainables.losses.base import LOSSES, Geometry
from trainables.methods.base import Batch, Progress, compare_embeddings
from trainables.trial import TrialConfig
from trainables.words.errors import ConfigError

# --- the forms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("gamma", [0.0, 3.0])
def test_every_pairs_score_by_loops(geometry: Geometry, gamma: float) -> None:
    method = build_on("idml", pair_loss(geometry), gamma=gamma)
    q, r = (torch.randn(n, D + U, dtype=torch.float64).requires_grad_() for n in (4, 3))
    found = method.score(q, r, geometry)
    rows = []
    for i in range(4):
        for j in range(3):
            four = (q[i, :D], r[j, :D], q[i, D:], r[j, D:])
            if geometry.kind in ("cosine", "dot"):
                rows.append(oracle.similarity(*four, TAU, gamma))
                continue
            d = oracle.distance(*four, TAU, gamma, geometry.normalize)
            rows.append(-d if geometry.kind == "l2" else -d * d)
    expected = torch.stack(rows).view(4, 3)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    weights = torch.randn(4, 3, dtype=torch.float64)
    ours = torch.autograd.grad((weights * found).sum(), [q, r])
    loops = torch.autograd.grad((weights * expected).sum(), [q, r])
    for mine, theirs in zip(ours, loops, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-10)


def test_ism_dis_by_loops() -> None:
    method = build_on("idml", pair_loss(Geometry("cosine")), metric="ism_dis")
    q = torch.randn(4, D + U, dtype=torch.float64)
    found = method.score(q[:2], q[2:], Geometry("cosine"))
    for i in range(2):
        for j in range(2):
            a, b = q[i], q[2 + j]
            expected = oracle.dissimilarity(a[:D], b[:D], a[D:], b[D:], TAU, GAMMA)
            torch.testing.assert_close(found[i, j], expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_on_duplicates_and_the_diagonal_are_finite(geometry: Geometry) -> None:
    for form in ("ism_sim", "ism_dis"):
        for gamma in (0.0, 3.0):
            method = build_on("idml", pair_loss(geometry), metric=form, gamma=gamma).float()
            for scale in (0.0, 1e-4, 1.0, 1e4):
                q = scale * torch.randn(4, D + U)
                q[1] = q[0]  # a duplicate
                q[2, D:] = -q[3, D:]  # β = 0
                q.requires_grad_()
                found = method.score(q, q, geometry)
                assert found.isfinite().all()
                (gradient,) = torch.autograd.grad(found.sum(), q)
                assert gradient.isfinite().all(), (form, gamma, scale)


# --- on the losses -----------------------------------------------------------------------------


def test_the_public_codes_uncertainty_head_gets_no_gradient_and_the_papers_does() -> None:
    """With u of unit length and proxies of none, β = 1 whatever the image."""
    features = x()
    method = build_on("idml", base("proxy_anchor", alpha=9.0), uncertainty="unit")
    s = features @ method.head.weight.T + method.head.bias
    u = features @ method.uncertainty.weight.T + method.uncertainty.bias
    p = method.loss.proxies

    def c(i: int, j: int) -> Tensor:
        r = oracle.public_relative(s[i], p[j], u[i], GAMMA)
        return 1 - (1 - oracle.cosine(s[i], p[j])) * torch.exp(-r / TAU)

    head = ("uncertainty.weight", "uncertainty.bias")
    found = metric(method, features, slots(SETS))
    compare_all(method, found, oracle.proxy_anchor(c, SETS, C, 9.0, 0.1), unreached=head)
    for gradient in torch.autograd.grad(found, list(method.uncertainty.parameters())):
        assert gradient.abs().max() < 1e-12

    method = build_on("idml", base("proxy_anchor", alpha=9.0))
    found = metric(method, features, slots(SETS))
    for gradient in torch.autograd.grad(found, list(method.uncertainty.parameters())):
        assert gradient.abs().max() > 1e-6


def test_learnable_proxy_uncertainty() -> None:
    method = build_on("idml", base("proxy_anchor"), proxy_uncertainty="learnable")
    features = x()
    assert method.proxy_uncertainty.shape == (C, U)
    assert not method.proxy_uncertainty.any()
    zero = build_on("idml", base("proxy_anchor"))
    labels = slots(SETS)
    found = metric(method, features, labels)
    assert torch.equal(found, metric(zero, features, labels))
    (gradient,) = torch.autograd.grad(found, [method.proxy_uncertainty])
    assert gradient.abs().sum() > 0
    roles = [(g.role, p) for g in method.param_groups("main") for p in g.params]
    assert any(role == "proxies" and p is method.proxy_uncertainty for role, p in roles)


# --- neutral, retrieval, what is refused -------------------------------------------------------


@pytest.mark.parametrize("test_metric", ["semantic", "introspective"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_retrieval_compares_s_or_both(geometry: Geometry, test_metric: str) -> None:
    method = build_on("idml", pair_loss(geometry), test_metric=test_metric)
    features = x()
    z = method.embed(features)
    found = compare_embeddings(method, z, z, geometry)
    s = method.head(features)
    if test_metric == "semantic":
        assert method.traits.plain_retrieval
        assert z.shape == (B, D)
        expected = geometries.score(s, s, geometry)
    else:
        assert not method.traits.plain_retrieval
        assert z.shape == (B, D + U)
        query = method(features, slots(SETS), Progress(), streams.create_generator(0, "m")).query
        expected = method.score(query, query, geometry)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_uncertainties_are_watched_apart() -> None:
    method = build_on("idml", base("proxy_anchor"), mixing="mixup")
    batch = method.prepare(Batch(x(), slots(SETS)[:, :1]), streams.create_generator(0, "prepare"))
    method(batch.inputs, batch.labels, Progress(), streams.create_generator(0, "method"))
    norms = method.uncertainty(batch.inputs).norm(dim=1)
    watched = method.observed()
    assert watched["uncertainty_original"].item() == pytest.approx(norms[:B].mean().item())
    assert watched["uncertainty_mixed"].item() == pytest.approx(norms[B:].mean().item())
    alone = build_on("idml", base("proxy_anchor"), mixing="none")
    alone(x(), slots(SETS)[:, :1], Progress(), streams.create_generator(0, "method"))
    assert list(alone.observed()) == ["uncertainty_original"]


def test_measures_of_a_block() -> None:
    method = build_on("idml", base("proxy_anchor"), mixing_beta=0.7)
    features = x()
    found = method.measure(features, lambda inputs: inputs, streams.create_generator(0, "measure"))
    share = torch._sample_dirichlet(
        torch.full((2,), 0.7, dtype=torch.float64), streams.create_generator(0, "measure")
    )[0]
    for i in range(B):
        j = (i + 1) % B
        one, other = (method.uncertainty(features[k]).norm().item() for k in (i, j))
        mixed = method.uncertainty(share * features[i] + (1 - share) * features[j]).norm().item()
        assert found["uncertainty_original"][i].item() == pytest.approx(one)
        assert found["uncertainty_mixed"][i].item() == pytest.approx(mixed)
        assert found["uncertainty_gap"][i].item() == pytest.approx(mixed - (one + other) / 2)


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        ({"backbone": {"mode": "frozen"}}, "must be feature_mixup or none, not mixup"),
        (
            {"backbone": {"mode": "frozen"}, "method": {"mixing": "cutmix"}},
            "there are no images to mix",
        ),
        ({"method": {"mixing": "feature_mixup"}}, "must be mixup, cutmix or none"),
        ({"method": {"mixing_probability": 0.5}}, "set method.originals to replaced"),
        (
            {"method": {"metric": "plain", "test_metric": "introspective"}},
            "test_metric must be semantic, not introspective",
        ),
    ],
)
def test_what_is_refused_at_plan_time(trial: dict[str, Any], message: str) -> None:
    method = {"name": "idml", **trial.pop("method", {})}
    with pytest.raises(ValidationError, match=message):
        TrialConfig.model_validate({**trial, "method": method})


def test_a_loss_without_a_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def trial(loss: str = "proxy_anchor", **method: Any) -> None:
        given = {"loss": {"name": loss}, "method": {"name": "idml", **method}}
        TrialConfig.model_validate(given)

    trial("triplet_l2")
    with pytest.raises(ValidationError, match=r"method\.metric must be ism_sim"):
        trial("triplet_l2", metric="ism_dis")  # its geometry is the instance's
    with pytest.raises(ValidationError, match="loss margin has no proxies"):
        trial("margin", proxy_uncertainty="learnable")
    cls = LOSSES["proxy_anchor"]
    monkeypatch.setattr(cls, "geometry", Geometry("hyperbolic"))
    with pytest.raises(ValidationError, match=r"geometry of .* is hyperbolic"):
        trial()
    trial(metric="plain")
    monkeypatch.setattr(cls, "geometry", Geometry("dot", normalize=False))
    with pytest.raises(ValidationError, match=r"geometry of .* is dot"):
        trial()


# --- how u starts ------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_u_starts_at_a_share_of_the_embeddings_length(geometry: Geometry, scale: float) -> None:
    """Whatever the length of the features; by loops over the images."""
    method = build_on("idml", pair_loss(geometry), uncertainty_start=0.25)
    assert method.traits.scaled_start
    features = x(scale=scale)
    method.scale_start(features)
    lengths, norms = [], []
    for f in features:
        s, u = (layer.weight @ f + layer.bias for layer in (method.head, method.uncertainty))
        lengths.append(1.0 if geometry.normalize else oracle.norm(s).item())
        norms.append(oracle.norm(u).item())
    assert sum(norms) / sum(lengths) == pytest.approx(0.25, rel=1e-9)
    fixed = build_on("idml", pair_loss(geometry))
    assert torch.equal(method.head.weight, fixed.head.weight)
    ratio = method.uncertainty.weight / fixed.uncertainty.weight
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_a_start_that_cannot_be_had_is_one_sentence() -> None:
    method = build_on("idml", pair_loss(Geometry("cosine")), uncertainty_start=0.1)
    with pytest.raises(ConfigError, match=r"0\.1 cannot be reached, because .* that of u 0"):
        method.scale_start(torch.zeros(B, 7, dtype=torch.float64))
    with pytest.raises(ValidationError, match=r"replaces uncertainty_gain 0\.02"):
        TrialConfig(method={"name": "idml", "uncertainty_start": 0.1, "uncertainty_gain": 0.02})
    assert not build_on("idml", pair_loss(Geometry("cosine"))).traits.scaled_start
