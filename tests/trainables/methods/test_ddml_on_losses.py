"""DDML attached to each base loss: its decoder is the loss's own proxies, all of a class's.

Tables 1 and 2 of the paper attach it to NormSoftmax, Proxy-Anchor, HypViT, CosFace, SphereFace
and ArcFace: "the existing decoders" of those with proxies, an added one for HypViT.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracles import ddml as oracle
from tests.trainables.methods.method_on import compare
from trainables import streams
from trainables.core.network import build_method
from trainables.losses.base import LOSSES
from trainables.methods.base import Progress, Term
from trainables.methods.ddml import DDML, DDMLState
from trainables.trial import TrialConfig

FEATURES, D, C = 7, 4, 5
LABELS = [0, 0, 1, 1, 3, 3]
SCALE = 23.0


def built(loss: str, method: str = "ddml", **options: Any) -> Any:
    config = TrialConfig(
        method={"name": method, **options}, loss={"name": loss}, embedding={"dim": D}
    )
    return build_method(config, features=FEATURES, classes=C, seed=2).double()


def step(method: Any) -> tuple[Any, dict[str, Term]]:
    draws = streams.create_generator(0, "x")
    x = 3 * torch.randn(len(LABELS), FEATURES, dtype=torch.float64, generator=draws)
    labels = torch.tensor(LABELS)[:, None]
    state = method(x, labels, Progress(), streams.create_generator(0, "method"))
    return state, method.terms(state, labels, Progress(), streams.create_generator(0, "loss"))


def class_posterior(
    z: Tensor, vectors: Tensor, per_class: int, scale: float = SCALE
) -> list[Tensor]:
    """q(c|z): the shares of all of the class's references, added up."""
    q = oracle.posterior(z, vectors, scale)
    return [sum(q[c * per_class + 1 : (c + 1) * per_class], q[c * per_class]) for c in range(C)]


# By defaults: 1/τ, α, s, λ; twice that of a squared distance, for unit vectors 2 − 2 cos.
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
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("loss", list(TIED))
def test_terms_by_loops_over_the_losses_own_proxies(loss: str, tied: bool) -> None:
    method = built(loss, **({"logit_scale": "tied"} if tied else {}))
    scale = TIED[loss] if tied else SCALE
    assert isinstance(method, DDML)
    assert method.decoder is None
    references = method.loss.references()
    assert len(references.vectors) == C * references.per_class
    state, terms = step(method)
    assert isinstance(state, DDMLState)

    agnostic, specific = torch.zeros(()).double(), torch.zeros(()).double()
    for n, y in enumerate(LABELS):
        own = (references.vectors, references.per_class, scale)
        of_sample = class_posterior(state.sample[n], *own)
        agnostic = agnostic - sum(torch.log(q) for q in of_sample) / C / len(LABELS)
        z = state.specific_sample[n]
        of_specific = class_posterior(z, *own)
        specific = specific - torch.log(of_specific[y]) / len(LABELS)
    for found, expected in ((terms["agnostic"], agnostic), (terms["specific"], specific)):
        assert {"head.weight"} < compare(method, found.value, expected)


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
    config = TrialConfig(
        method={"name": "ddml", "logit_scale": "tied"},
        loss={"name": loss, **SOFTMAX[loss]},
        embedding={"dim": D},
    )
    method = build_method(config, features=FEATURES, classes=C, seed=2).double()
    assert method.loss.logit_scale == 10
    state, terms = step(method)
    log_q = torch.log_softmax(
        method._compute_logits(state.query, method._get_decoder_references()), -1
    )
    expected = -log_q[torch.arange(len(LABELS)), torch.tensor(LABELS)].mean()
    torch.testing.assert_close(terms["metric"].value, expected)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_a_decoder_is_added_only_where_the_loss_has_no_proxies(loss: str) -> None:
    try:
        method = built(loss)
    except ValueError as refusal:
        pytest.skip(f"refused: {refusal}")
    has = method.loss.references() is not None
    assert (method.decoder is None) == has == (method.loss.logit_scale is not None)
    decoder = method._get_decoder_references()
    proxies = {id(p) for p in method.loss.parameters()} if has else {id(method.decoder.weights)}
    assert id(decoder.vectors) in proxies
    grouped = [p for group in method.param_groups("main") for p in group.params]
    assert sum(p is decoder.vectors for p in grouped) == 1
    assert decoder.labels.tolist() == [c for c in range(C) for _ in range(decoder.per_class)]
