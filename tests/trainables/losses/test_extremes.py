"""Every registered loss at extremes: a finite value and gradient, or a clear refusal.

Batches follow what a loss asks of the sampler (`Loss.batch`), and go through the plain method,
as in training, so that a loss with references, one on the batch itself and one that brings its
own way from embeddings to a value are all held to the same.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.trainables.components import loss_options
from trainables import streams
from trainables.config import TrialConfig
from trainables.errors import ConfigError
from trainables.losses.base import LOSSES, BatchNeeds
from trainables.methods.base import Method
from trainables.model import build_method

C, D, B = 6, 8, 12

# Fields that multiply scores before an exponential, set so that the factor is 64.
STEEP: dict[str, float] = {"scale": 64.0, "alpha": 64.0, "temperature": 1 / 64}


def labels_of(needs: BatchNeeds, size: int, classes: int) -> Tensor:
    """[size, 1] labels of a batch as the sampler deals it to such a loss: class-major, equally
    many of each; two of each class where a loss is content with one."""
    each = max(2, needs.per_class)
    labels = torch.arange(size) // each
    assert size % each == 0 or needs.layout == "any"
    return (labels * (classes // int(labels.max() + 1)))[:, None]


def method_of(loss: str, *, classes: int = C, **options: Any) -> Method:
    config = TrialConfig(loss={**loss_options(loss), **options}, embedding={"dim": D})
    return build_method(config, features=D, classes=classes, seed=1)


def finite_value_and_gradients(method: Method, x: Tensor, labels: Tensor) -> None:
    x = x.detach().requires_grad_()
    try:
        value = method.metric(x, labels, streams.generator(0, "loss"))
    except ConfigError as refusal:
        assert "found" in str(refusal)  # what was found, what was expected, the remedy
        return
    total = value + sum(w * v for v, w in method.loss.penalty().values())
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert total.isfinite()
    total.backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for name, parameter in method.loss.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def drawn(size: int = B) -> Tensor:
    return torch.randn(size, D, generator=streams.generator(0, "x"))


def in_autocast(size: int = B) -> Tensor:
    """Embeddings that a layer computed in bfloat16, few distinct values among them."""
    layer = torch.nn.Linear(D, D)
    with torch.autocast("cpu", torch.bfloat16):
        z = layer(drawn(size))
    assert z.dtype == torch.bfloat16
    return z.float()


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize(
    "case",
    ["bf16", "equal", "opposite", "zero", "one zero", "tiny", "huge", "one class", "two", "pairs"],
)
def test_finite(loss: str, case: str) -> None:
    needs, size = LOSSES[loss].batch, B
    if case in ("two", "pairs"):
        size = max(2, needs.per_class) * (2 if case == "pairs" else 1)
    x, labels = drawn(size), labels_of(needs, size, C)
    if case == "bf16":
        x = in_autocast()
    elif case == "equal":
        x = x[:1].expand(size, -1)
    elif case == "opposite":
        x = x[:1] * (-1) ** torch.arange(size)[:, None]
    elif case == "zero":
        x = torch.zeros_like(x)
    elif case == "one zero":
        x[0] = 0
    elif case == "tiny":
        x = 1e-20 * x
    elif case == "huge":
        x = 1e4 * x
    elif case == "one class":
        labels = torch.zeros_like(labels)
    finite_value_and_gradients(method_of(loss), x, labels)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_two_classes_of_one_image_each(loss: str) -> None:
    """No positive in the batch; only where the sampler may deal such a batch."""
    if LOSSES[loss].batch.per_class > 1:
        pytest.skip("asks for more images of each class")
    finite_value_and_gradients(method_of(loss), drawn(2), torch.tensor([[0], [4]]))


@pytest.mark.parametrize("loss", list(LOSSES))
def test_as_many_classes_as_stanford_online_products_trains(loss: str) -> None:
    labels = labels_of(LOSSES[loss].batch, B, 11_318)
    assert labels.max() > 9_000
    finite_value_and_gradients(method_of(loss, classes=11_318), drawn(), labels)


def steep() -> list[tuple[str, str]]:
    fields = [(name, field) for name in LOSSES for field in LOSSES[name].Config.model_fields]
    return [(name, field) for name, field in fields if field in STEEP]


@pytest.mark.parametrize(("loss", "field"), steep())
@pytest.mark.parametrize("case", ["drawn", "on the references", "against them", "equal"])
def test_scale_64(loss: str, field: str, case: str) -> None:
    try:
        method = method_of(loss, **{field: STEEP[field]})
    except ValidationError:
        pytest.skip(f"{field} {STEEP[field]} is out of range, and refused")
    x, labels = drawn(), labels_of(LOSSES[loss].batch, B, C)
    references = method.loss.references()
    if references is not None and "the" in case:
        own = references.vectors.detach()[labels[:, 0] * references.per_class]
        x = own if case == "on the references" else -own
    elif case == "equal":
        x = torch.ones_like(x)
    finite_value_and_gradients(method, x, labels)


def test_every_loss_with_a_scale_was_met() -> None:
    with_scale = {name for name, _ in steep()}
    assert with_scale >= {"normsoftmax", "proxy_anchor", "cosface", "arcface", "sphereface"}
    assert with_scale >= {"proxy_nca", "proxy_nca_pp", "proxy_nca_nir", "soft_triple"}


@pytest.mark.parametrize("loss", list(LOSSES))
def test_leading_dimensions_are_meaned(loss: str) -> None:
    method, labels = method_of(loss), labels_of(LOSSES[loss].batch, B, C)
    x = torch.stack([(1 + t) * drawn().roll(t, 1) for t in range(3)])
    draws = [streams.generator(0, "loss") for _ in range(2)]
    if not repeatable(method, x[0], labels):
        pytest.skip("draws from the generator: samples of one call differ from those of three")
    found = method.metric(x, labels, draws[0])
    each = torch.stack([method.metric(part, labels, draws[1]) for part in x])
    torch.testing.assert_close(found, each.mean())


def repeatable(method: Method, x: Tensor, labels: Tensor) -> bool:
    """Whether the loss leaves the generator alone."""
    draws = streams.generator(0, "loss")
    before = draws.get_state().clone()
    method.metric(x, labels, draws)
    return torch.equal(before, draws.get_state())
