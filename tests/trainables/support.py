"""Which method takes which loss, and with what options."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.trainables.components import trial
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

# Options with which a method takes losses that it refuses by default.
ALTERNATIVES: dict[str, tuple[dict[str, Any], ...]] = {
    "idml": ({"mixing": "none"}, {"uncertainty": "relu"}),
    "pel": ({"mixing": "none"},),
}
FEATURES, D, CLASSES, EACH = 9, 8, 6, 6


class Cell(NamedTuple):
    """options: those that it takes, beside the method's name; None: none that are known.
    reason: why the defaults are refused, if they are; of no options, why the last are."""

    options: dict[str, Any] | None
    reason: str | None


def settings() -> dict[str, Any]:
    return {"embedding": {"dim": D}, "training": {"batch_size": 12, "per_class": 2, "epochs": 2}}


def cell(method: str, loss: str) -> Cell:
    default = trial({"name": method}, loss, **settings())
    if isinstance(default, TrialConfig):
        return Cell({}, None)
    other = default
    for options in ALTERNATIVES.get(method, ()):
        found = trial({"name": method, **options}, loss, **settings())
        if isinstance(found, TrialConfig):
            return Cell(options, default)
        other = found if other == default else other
    return Cell(None, other)


PAIRS = [(method, loss) for method in METHODS for loss in LOSSES]
