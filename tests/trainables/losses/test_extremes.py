"""Every registered loss at extremes, as `ablate/testing/losses.py` says, and at a scale of 64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ablate.testing import losses
from ablate.testing.losses import (
    B,
    build_labels,
    check_finite_gradients,
    draw_embeddings,
    find_needs,
)
from tests.trainables.components import loss_options
from trainables.losses.base import LOSSES
from trainables.methods.base import Method

# Fields that multiply scores before an exponential, set so that the factor is 64.
STEEP: dict[str, float] = {"scale": 64.0, "alpha": 64.0, "temperature": 1 / 64}


@pytest.mark.parametrize("loss", list(LOSSES))
def test_a_loss_passes_all_checks(loss: str) -> None:
    losses.check(loss_options(loss))


def test_a_broken_loss_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the checks cannot pass by looking at nothing."""
    loss = LOSSES["normsoftmax"]
    forward = loss.forward
    losses.check("normsoftmax")
    monkeypatch.setattr(loss, "forward", lambda *given, **more: -forward(*given, **more))
    with pytest.raises(AssertionError, match="closer positive pairs must lower the loss"):
        losses.check("normsoftmax")
    monkeypatch.setattr(loss, "forward", lambda *given, **more: forward(*given, **more) / 0)
    with pytest.raises(AssertionError, match="the value is inf"):
        losses.check("normsoftmax")


def method_of(loss: str, **options: Any) -> Method:
    return losses.build_plain_method({**loss_options(loss), **options})


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
    x, labels = draw_embeddings(), build_labels(find_needs(loss), B, losses.C)
    references = method.loss.references()
    if references is not None and "the" in case:
        own = references.vectors.detach()[labels[:, 0] * references.per_class]
        x = own if case == "on the references" else -own
    elif case == "equal":
        x = torch.ones_like(x)
    check_finite_gradients(method, x, labels)
