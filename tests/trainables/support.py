"""Which method takes which loss, and with what options; which of the pairs are tested quickly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from tests.trainables.components import trial
from trainables.losses.base import LOSSES
from trainables.methods.base import METHODS
from trainables.trial import TrialConfig

# Options with which a method takes losses that it refuses by default.
ALTERNATIVES: dict[str, tuple[dict[str, Any], ...]] = {
    "idml": ({"mixing": "none"}, {"uncertainty": "relu"}),
    "pel": ({"mixing": "none"},),
    "anti_collapse": ({"points": "images", "f": "linear", "weight": 0.01},),
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
        results = trial({"name": method, **options}, loss, **settings())
        if isinstance(results, TrialConfig):
            return Cell(options, default)
        other = results if other == default else other
    return Cell(None, other)


PAIRS = [(method, loss) for method in METHODS for loss in LOSSES]


def mark_slow_pairs(
    methods: Sequence[Any], losses: Sequence[str], accepts: Callable[[Any, str], bool]
) -> list[Any]:
    """Return all accepted pairs as parameters of a test, most of them marked slow.

    In the quick ones each loss stands with two methods and each method with three losses, chosen
    so that all methods stand in about as many pairs. Most faults belong to a method or to a loss
    and show in any pair; the slow suite runs the product.

    Args:
        methods: names, or options with the name among them.
        accepts: whether a method takes a loss.
    """
    accepted = {
        (i, loss) for i, item in enumerate(methods) for loss in losses if accepts(item, loss)
    }
    in_use: Counter[int | str] = Counter()
    quick: set[tuple[int, str]] = set()

    def choose(candidates: list[tuple[int, str]], key: int) -> None:
        pair = min(candidates, key=lambda pair: (in_use[pair[key]], pair))
        quick.add(pair)
        in_use.update(pair)

    for loss in losses:
        for _ in range(2):
            if candidates := [pair for pair in accepted - quick if pair[1] == loss]:
                choose(candidates, 0)
    for i in range(len(methods)):
        while in_use[i] < 3 and (candidates := [pair for pair in accepted - quick if pair[0] == i]):
            choose(candidates, 1)
    names = [
        item if isinstance(item, str) else f"{item['name']}{i}" for i, item in enumerate(methods)
    ]
    return [
        pytest.param(
            methods[i],
            loss,
            id=f"{names[i]}-{loss}",
            marks=[] if (i, loss) in quick else [pytest.mark.slow],
        )
        for i, loss in sorted(accepted)
    ]
