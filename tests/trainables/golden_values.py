"""Terms of every loss and method on fixed numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.trainables.components import labels_for, loss_options
from trainables.core.assembly import build_method
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS, Progress
from trainables.trial import TrialConfig

FEATURES, D, C, B = 6, 4, 3, 6

METHODS_ON = ("proxy_anchor",)  # losses that a method's golden values are taken on


def wave(*shape: int, shift: float) -> Tensor:
    """Fixed numbers that need no generator."""
    n = torch.Size(shape).numel()
    return torch.sin(1.7 * torch.arange(n, dtype=torch.float64) + shift).view(shape)


def measured(method: str, loss: str) -> dict[str, float]:
    config = TrialConfig(method={"name": method}, loss=loss_options(loss), embedding={"dim": D})
    built = build_method(config, features=FEATURES, classes=C, seed=0).double()
    with torch.no_grad():
        for position, parameter in enumerate(built.parameters()):
            parameter.copy_(wave(*parameter.shape, shift=position))
    labels = labels_for(loss, B, C)
    generator = torch.Generator().manual_seed(0)
    state = built(wave(B, FEATURES, shift=0.5), labels, Progress(), generator)
    terms = built.terms(state, labels, Progress(), generator)
    return {name: term.value.item() for name, term in terms.items()}


def components() -> list[tuple[str, str, int, list[tuple[str, str]]]]:
    """(kind, name, revision, [(method, loss) whose terms are its numbers])."""
    losses = [("loss", name, LOSSES[name].REVISION, [("plain", name)]) for name in LOSSES]
    methods = [
        ("method", name, METHODS[name].REVISION, [(name, loss) for loss in METHODS_ON])
        for name in METHODS
    ]
    return losses + methods
