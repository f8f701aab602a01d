"""Losses of pytorch-metric-learning by name: what they give, and what is refused when."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import LpDistance

from trainables import streams
from trainables.core.assembly import build_method
from trainables.losses.base import Geometry, Traits
from trainables.methods.base import Method
from trainables.methods.plain import Plain
from trainables.trial import TrialConfig

D, C = 6, 4


def built(name: str, method: str = "plain", **loss: Any) -> Method:
    config = TrialConfig(
        loss={"name": "pml", "class": name, **loss}, method={"name": method}, embedding={"dim": D}
    )
    return build_method(config, features=D, classes=C, seed=2)


def batch(*lead: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(*lead, 12, D, generator=streams.create_generator(0, "x"))
    return x.requires_grad_(), (torch.arange(12) % C)[:, None]


def metric(method: Method, x: torch.Tensor, labels: torch.Tensor, step: int = 0) -> torch.Tensor:
    return method.metric(x, labels, streams.create_generator(0, "loss", step))


def test_value_and_gradient_are_the_librarys() -> None:
    x, labels = batch()
    method = built("CircleLoss", options={"m": 0.3, "gamma": 64})
    found = metric(method, x, labels)
    expected = losses.CircleLoss(m=0.3, gamma=64)(x, labels[:, 0])
    assert torch.equal(found, expected)
    ours, theirs = torch.autograd.grad(found, x), torch.autograd.grad(expected, x)
    assert torch.equal(ours[0], theirs[0])


def test_miner_and_distance() -> None:
    x, labels = batch()
    method = built(
        "TripletMarginLoss",
        options={"margin": 0.1},
        miner={"class": "TripletMarginMiner", "options": {"margin": 0.3}},
        distance={"class": "LpDistance", "options": {"power": 2}},
    )
    distance = LpDistance(power=2)
    mined = miners.TripletMarginMiner(margin=0.3, distance=distance)(x, labels[:, 0])
    expected = losses.TripletMarginLoss(margin=0.1, distance=distance)(x, labels[:, 0], mined)
    assert torch.equal(metric(method, x, labels), expected)


def test_class_weights_are_sized_drawn_from_the_seed_and_trained_as_proxies() -> None:
    first, second = built("ProxyAnchorLoss"), built("ProxyAnchorLoss")
    (group,) = first.loss.param_groups()
    assert group.role == "proxies"
    assert [p.shape for p in group.params] == [(C, D)]
    assert torch.equal(group.params[0], second.loss.param_groups()[0].params[0])
    x, labels = batch()
    metric(first, x, labels).backward()
    assert group.params[0].grad is not None
    assert group.params[0].grad.abs().sum() > 0
    assert built("CircleLoss").loss.param_groups() == []


def test_draws_come_from_the_generator_and_leave_torchs_own_alone() -> None:
    x, labels = batch()
    method = built("TripletMarginLoss", options={"triplets_per_anchor": 2})
    before = torch.get_rng_state()
    found = [metric(method, x, labels, step).item() for step in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"name": "CircleLoss"}, Geometry("cosine")),
        ({"name": "TripletMarginLoss"}, Geometry("l2")),
        ({"name": "NPairsLoss"}, Geometry("dot")),
        ({"name": "SignalToNoiseRatioContrastiveLoss"}, Geometry("cosine")),
        (
            {
                "name": "TripletMarginLoss",
                "distance": {"class": "LpDistance", "options": {"normalize_embeddings": False}},
            },
            Geometry("l2", normalize=False),
        ),
    ],
)
def test_retrieval_compares_by_the_losses_distance(
    options: dict[str, Any], expected: Geometry
) -> None:
    assert built(**options).loss.retrieval == expected


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            {"class": "CircelLoss"},
            "no class CircelLoss. .* such as CircleLoss",
        ),
        ({"class": "CircleLoss", "options": {"margin": 1}}, "unexpected keyword argument 'margin'"),
        ({"class": "RankedListLoss"}, "missing 2 required positional arguments"),
        ({"class": "SelfSupervisedLoss"}, "cannot compute SelfSupervisedLoss"),
        (
            {"class": "ArcFaceLoss", "options": {"num_classes": 9}},
            "multiple values for keyword argument .num_classes",
        ),
    ],
)
def test_refused_before_anything_runs(loss: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as found:
        TrialConfig(loss={"name": "pml", **loss})
    (error,) = found.value.errors()
    assert "\n" not in error["msg"]


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == "pytorch_metric_learning"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(ValidationError, match=r"pip install 'pytorch-metric-learning>=2\.8'"):
        TrialConfig(loss={"name": "pml", "class": "CircleLoss"})


def test_methods_with_a_score_or_label_sets_of_their_own_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss = {"name": "pml", "class": "CircleLoss"}
    pooled = {"name": "dvml", "generated": "pooled", "same_image": "excluded"}
    with pytest.raises(ValidationError, match="method dvml does not compare plain"):
        TrialConfig(loss=loss, method=pooled)
    with monkeypatch.context() as patch:
        patch.setattr(Plain, "score", lambda self, q, r, g: q @ r.mT, raising=False)
        with pytest.raises(ValidationError, match="method plain does not compare plain"):
            TrialConfig(loss=loss)
    monkeypatch.setattr(Plain, "describe_traits", classmethod(lambda *_: Traits(label_sets=True)))
    with pytest.raises(ValidationError, match="several labels"):
        TrialConfig(loss=loss)
