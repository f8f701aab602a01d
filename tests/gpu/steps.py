"""One step of any method with any loss on given features, on any device and in any type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ablate.testing import methods
from tests.gpu.on import SameDraws
from tests.trainables.components import labels_for, loss_options
from trainables import streams
from trainables.core.loss_terms import EpochMetrics
from trainables.methods.base import Batch, Method, Progress

IMAGES = 12


def built(method: str | dict[str, Any], loss: str) -> Method | None:
    """On the CPU; None, where one of the two refuses the other."""
    if methods.find_refusal(method, loss_options(loss)) is not None:
        return None
    return methods.build_seeded_method(method, loss_options(loss))


def stepped(
    made: Method, loss: str, device: torch.device, dtype: torch.dtype, fraction: float = 0.0
) -> dict[str, Tensor | None]:
    """The loss, its terms, and the gradients of the features and of each parameter, by name.

    Args:
        fraction: of the training, for methods of several phases.
    """
    made = made.to(device, dtype)
    made.zero_grad()
    x = methods.draw_features(IMAGES).to(device, dtype).requires_grad_()
    labels = labels_for(loss, IMAGES, methods.C, major=True).to(device)
    progress = Progress(step=3, fraction=fraction)
    draws = {name: streams.create_generator(0, name) for name in ("prepare", "method", "loss")}
    with SameDraws():
        batch = made.prepare(Batch(x, labels), draws["prepare"])
        state = made(batch.inputs, batch.labels, progress, draws["method"])
        terms = made.terms(state, batch.labels, progress, draws["loss"])
    total = EpochMetrics(1, 0).add(terms)
    total.backward()  # type: ignore[no-untyped-call]
    results = {f"term {name}": term.value.detach() for name, term in terms.items()}
    gradients = {name: parameter.grad for name, parameter in made.named_parameters()}
    assert total.device.type == device.type
    return {"loss": total.detach(), "features": x.grad, **results, **gradients}
