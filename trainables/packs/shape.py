"""Which trials can train as one program, and which of them with each other.

Members of a pack have all in common that shapes the program: data, backbone, sizes, loss and method
with their options, optimiser, schedule, epochs, selection. Each has numbers of its own: the seed,
learning rates and weight decays, and the numbers of loss and method (weights, temperatures,
margins), which stand there as attributes that may be tensors. Only which of those are 0 is part of
the shape: a term of weight 0 is left out of the sum, and so of the gradients.
"""

from __future__ import annotations

import json
from typing import Any

from trainables.errors import ConfigError
from trainables.losses.base import LOSSES, Loss
from trainables.methods.base import METHODS, Method
from trainables.trial import TrialConfig

OPTION = "training.packed"
OWN = ("lr", "weight_decay", "multipliers", "weight_decays")  # of the optimiser, each member's


def numbers(kind: type[Loss | Method]) -> list[str]:
    """The options of a loss or method that each member of a pack has for itself."""
    static = getattr(kind, "STATIC", ())
    fields = kind.Config.model_fields.items()
    return [name for name, field in fields if field.annotation is float and name not in static]


def pack_shape(config: TrialConfig) -> str:
    """Trials of which this text is the same may share a pack."""
    dump: dict[str, Any] = config.model_dump(mode="json")
    for part, kind in (("loss", LOSSES[config.loss.name]), ("method", METHODS[config.method.name])):
        dump[part] |= {name: bool(dump[part][name]) for name in numbers(kind)}
    for name in OWN:
        del dump["optimizer"][name]
    return json.dumps(dump, sort_keys=True)


def check_packs(config: TrialConfig) -> None:
    """Refuse what cannot train as one program with others.

    Raises:
        ConfigError: a backbone that trains, a loss or a method that says why it cannot.
    """
    packed = config.training.packed
    if packed is None:
        return
    if config.backbone.mode != "frozen":
        raise ConfigError(
            OPTION,
            f"{packed} with backbone.mode: {config.backbone.mode}",
            "it with cached features alone (backbone.mode: frozen)",
            "Leave it out: a backbone that trains fills a device by itself",
        )
    loss, method = LOSSES[config.loss.name], METHODS[config.method.name]
    for part, why in (
        (f"loss {config.loss.name}", loss.unpacked(config.loss)),
        (f"method {config.method.name}", method.unpacked(config.method)),
    ):
        if why is not None:
            raise ConfigError(
                OPTION, f"{packed} with the {part}", f"it with another one: {why}", "Leave it out"
            )
