"""DVML's terms against loops over the paper's equations; its phases; its neutral form."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.oracles import dvml as oracle
from tests.oracles import losses as oracle_losses
from tests.oracles import pairs as oracle_pairs
from tests.trainables.methods import cases
from tests.trainables.methods.cases import LABELS, WIDE, B, C, D, base, compare, noise, step, x
from trainables import streams
from trainables.config.network import EmbeddingConfig
from trainables.methods.base import Progress
from trainables.methods.dvml import DVML, bend_log_variance
from trainables.trial import TrialConfig

T = cases.SAMPLES
FIRST, SECOND = Progress(fraction=0.0), Progress(fraction=0.9)
built = partial(cases.built, "dvml")
WEIGHTS = {FIRST: (1.0, 1.0, 0.1, 1.0), SECOND: (0.8, 1.0, 0.2, 0.8)}


HEADS = {
    f"{part}.{kind}" for part in ("head", "mean", "log_variance") for kind in ("weight", "bias")
}
SPREAD = {name for name in HEADS if not name.startswith("head")}
DECODER = {"decoder.0.weight", "decoder.0.bias", "decoder.2.weight", "decoder.2.bias"}


class ByLoops:
    """The forward pass of `method` on `features`, from its weights and the step's own draws."""

    def __init__(self, method: DVML, features: Tensor) -> None:
        def rows(layer: Any) -> Tensor:
            return torch.stack([oracle.linear(row, layer.weight, layer.bias) for row in features])

        self.noise = noise(T, B, D)
        self.invariant, self.mean = rows(method.head), rows(method.mean)
        self.log_variance = rows(method.log_variance)
        self.generated = oracle.samples(self.invariant, self.mean, self.log_variance, self.noise)
        self.layers = [
            (layer.weight, layer.bias) for layer in (method.decoder[0], method.decoder[2])
        ]


@pytest.mark.parametrize("kl", ["corrected", "printed"])
@pytest.mark.parametrize("over", ["sum", "mean"])
def test_l1_by_loops(over: str, kl: str) -> None:
    method, features = built(kl=kl, kl_over=over), x(scale=3).requires_grad_()
    _, terms = step(method, FIRST, features)
    own = ByLoops(method, features)
    printed = oracle.kl_printed(own.mean, own.log_variance)
    divergence = oracle.kl_by_dimension(own.mean, own.log_variance) if over == "mean" else -printed
    expected = -divergence if kl == "printed" else divergence
    assert compare(method, terms["kl"].value, expected, features=features) == {*SPREAD, "features"}
    posterior = torch.distributions.Normal(own.mean, (0.5 * own.log_variance).exp())
    prior = torch.distributions.Normal(torch.zeros(()).double(), torch.ones(()).double())
    each = torch.distributions.kl_divergence(posterior, prior)
    torch.testing.assert_close(divergence, each.sum(-1).mean() / (D if over == "mean" else 1))
    assert (terms["kl"].value > 0) == (kl == "corrected")


@pytest.mark.parametrize("target", ["detached", "attached"])
@pytest.mark.parametrize("reading", ["squared", "norm"])
@pytest.mark.parametrize("progress", [FIRST, SECOND], ids=["phase 1", "phase 2"])
def test_l2_by_loops(progress: Progress, reading: str, target: str) -> None:
    """In phase 1 the decoder alone learns from it, and the features if they are its target; in
    phase 2 heads and features do too."""
    method, features = built(reconstruction=reading, target=target), x(scale=3).requires_grad_()
    _, terms = step(method, progress, features)
    own = ByLoops(method, features)
    cut = [z.detach() for z in own.generated] if progress is FIRST else own.generated
    of_features = features if target == "attached" else features.detach()
    power = 2 if reading == "squared" else 1
    expected = oracle.reconstruction(of_features, cut, own.layers, power)
    reached = compare(method, terms["reconstruction"].value, expected, features=features)
    assert ("features" in reached) == (progress is SECOND or target == "attached")
    assert reached - {"features"} == (DECODER if progress is FIRST else {*DECODER, *HEADS})


def test_a_detached_spread_leaves_the_features_alone() -> None:
    """The same values; L1 ends at its two heads, L2 and L3 reach the features by z_I alone."""
    features, method = x(scale=3).requires_grad_(), built(spread="detached")
    _, terms = step(method, SECOND, features)
    _, usual = step(built(), SECOND)
    for name, term in terms.items():
        assert torch.equal(term.value, usual[name].value)
    leaves = {**dict(method.named_parameters()), "features": features}
    grads = torch.autograd.grad(
        terms["kl"].value, list(leaves.values()), retain_graph=True, allow_unused=True
    )
    assert {name for name, g in zip(leaves, grads, strict=True) if g is not None} == SPREAD
    own = ByLoops(method, features)
    alone = oracle.samples(
        own.invariant, *(part.detach() for part in (own.mean, own.log_variance)), own.noise
    )
    each = list(range(B))
    expected = sum(metric_by_loops("normsoftmax", method, list(z), each) for z in alone) / T
    (mine,) = torch.autograd.grad(terms["generated"].value, features, retain_graph=True)
    (loops,) = torch.autograd.grad(expected, features)
    torch.testing.assert_close(mine, loops, rtol=1e-6, atol=1e-10)


def metric_by_loops(loss: str, method: DVML, z: list[Tensor], images: list[int]) -> Tensor:
    labels = [LABELS[i] for i in images]
    x, sets = torch.stack(z), [{label} for label in labels]
    if loss == "normsoftmax":
        return oracle_losses.normsoftmax(x, method.loss.weights, sets, 0.05)
    if loss == "proxy_anchor":
        return oracle_losses.proxy_anchor(x, method.loss.proxies, sets, 32, 0.1)
    zero = x.new_zeros(())
    if loss == "n_pair":
        return oracle_pairs.n_pair(x, labels, zero)
    if loss == "triplet_l2sq":
        distance = oracle_pairs.distances(x, squared=True, normalize=True)
        mined = oracle_pairs.triplets(sets, distance, "semihard", WIDE)
        return oracle_pairs.triplet(mined, distance, WIDE, "active", zero)
    positive = method.options.same_image == "positive"
    return oracle.margin_pairs(z, labels, images, same_image_positive=positive)


ON = ["normsoftmax", "proxy_anchor", "pairs", "n_pair", "triplet_l2sq"]


@pytest.mark.parametrize("loss", ON)
@pytest.mark.parametrize("progress", [FIRST, SECOND], ids=["phase 1", "phase 2"])
def test_l3_as_the_mean_over_t_batches_and_l4_by_loops(loss: str, progress: Progress) -> None:
    method, features = built(loss=loss), x(scale=3).requires_grad_()
    _, terms = step(method, progress, features)
    own, each = ByLoops(method, features), list(range(B))
    batches = [metric_by_loops(loss, method, list(z), each) for z in own.generated]
    reached = compare(method, terms["generated"].value, sum(batches) / T, features=features)
    assert reached >= {*HEADS, "features"}
    expected = metric_by_loops(loss, method, list(own.invariant), each)
    reached = compare(method, terms["metric"].value, expected, features=features)
    assert reached >= {"head.weight", "features"}
    assert not reached & {*SPREAD, *DECODER}


@pytest.mark.parametrize("loss", ON[:-1])
@pytest.mark.parametrize("same_image", ["positive", "excluded"])
def test_l3_as_one_pooled_batch_by_loops(loss: str, same_image: str) -> None:
    method = built(loss=loss, generated="pooled", same_image=same_image)
    features = x(scale=3).requires_grad_()
    _, terms = step(method, SECOND, features)
    own = ByLoops(method, features)
    z = [batch[i] for i in range(B) for batch in own.generated]
    images = [i for i in range(B) for _ in range(T)]
    expected = metric_by_loops(loss, method, z, images)
    compare(method, terms["generated"].value, expected, features=features)


@pytest.mark.parametrize("progress", [FIRST, SECOND], ids=["phase 1", "phase 2"])
def test_the_papers_weights_by_phase(progress: Progress) -> None:
    _, terms = step(built(), progress)
    found = tuple(terms[name].weight for name in ("kl", "reconstruction", "generated", "metric"))
    assert found == WEIGHTS[progress]
    assert DVML.Config().samples == 20
    assert DVML.Config().hidden == 512


def test_the_added_layers_start_as_in_chainer_and_apart() -> None:
    with streams.seed_global_generator(0, "init", "method"):
        method = DVML(
            DVML.Config(),
            features=300,
            embedding=EmbeddingConfig(dim=200),
            loss=base("normsoftmax"),
            classes=C,
        )
    layers = {"mean": 300, "log_variance": 300, "decoder.0": 200, "decoder.2": 512}
    for name, wide in layers.items():
        layer = method.get_submodule(name)
        assert layer.weight.var().item() == pytest.approx(1 / wide, rel=0.03)
        assert not layer.bias.any()
    assert not torch.equal(method.mean.weight, method.log_variance.weight)
    assert torch.equal(cases.built("plain").head.weight, built().head.weight)


def test_observed_by_hand() -> None:
    method, features = built(), x(scale=3)
    step(method, FIRST, features)
    own, seen = ByLoops(method, features), method.observed()
    torch.testing.assert_close(seen["std"], own.log_variance.exp().sqrt().mean())
    torch.testing.assert_close(seen["invariant_norm"], own.invariant.norm(dim=1).mean())
    variance = torch.stack(own.generated) - own.invariant
    torch.testing.assert_close(seen["variance_norm"], variance.norm(dim=2).mean())
    assert not any(value.requires_grad for value in seen.values())


def test_log_variance_bends_above_ten_only() -> None:
    x = torch.tensor([-500.0, 0.0, 9.9, 10.0, 12.0, 1e4], dtype=torch.float64, requires_grad=True)
    found = bend_log_variance(x)
    assert torch.equal(found[:4], x[:4])
    torch.testing.assert_close(found[4].exp(), 3 * torch.exp(torch.tensor(10.0)).double())
    (gradient,) = torch.autograd.grad(found.exp().sum(), x)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient[3:], torch.exp(torch.tensor([10.0] * 3)).double())


def test_a_phase_without_any_term_is_refused() -> None:
    for phase, without in ((1, 0), (2, 1)):
        none = {f"lambda{term}_phase{phase}": 0 for term in (1, 2, 3, 4)}
        message = f"lambdas of phase {phase} are 0.*lambda4_phase{phase} .* phase1 to {without}"
        with pytest.raises(ValidationError, match=message):
            TrialConfig(method={"name": "dvml", **none})
        assert TrialConfig(method={"name": "dvml", **none, "phase1": without})
        assert TrialConfig(method={"name": "dvml", **none, f"lambda4_phase{phase}": 1})
    TrialConfig(method={"name": "dvml", **DVML.NEUTRAL})
