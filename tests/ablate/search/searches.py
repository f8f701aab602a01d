"""Searches driven as the engine drives them, without training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ablate.designs.search import Search
from ablate.search.sampling import ObservedTrial, propose

SAMPLERS = ["tpe", "random", "quasi_random", "gp", "cmaes", "nsga2"]

CUBE: dict[str, Any] = {
    "x": {"low": -1, "high": 2},
    "y": {"low": 1e-3, "high": 10, "log": True},
    "n": {"low": 1, "high": 9, "int": True},
    "c": {"choice": ["a", [1, 2], {"name": "z"}]},
}

NUMBERS: dict[str, Any] = {
    "x": {"low": -3, "high": 3},
    "y": {"low": -3, "high": 3},
    "z": {"low": 1e-3, "high": 1e3, "log": True},
}


def study(space: dict[str, Any] = CUBE, **more: Any) -> Search:
    given = {"design": "search", "trials": 1000, "round": 1, "startup": 5, "space": space, **more}
    return Search.model_validate(given)


def driven(
    made: Search, key: str, budget: int, value: Callable[[dict[str, Any]], Any]
) -> list[ObservedTrial]:
    """A search of rounds, driven as the engine does."""
    assert isinstance(made.round, int)
    told: list[ObservedTrial] = []
    while len(told) < budget:
        start = len(told)
        for idx in range(start, min(start + made.round, budget)):
            told.append(
                ObservedTrial(
                    propose(made, key, told), None, running=True, concurrent=(*range(start, idx),)
                )
            )
        told[start:] = [
            ObservedTrial(t.params, value(t.params), concurrent=t.concurrent) for t in told[start:]
        ]
    return told


def bowl(params: dict[str, Any]) -> float:
    """Best value 0 at x = 1, y = −0.5, log10 z = 1; coupled and unevenly scaled."""
    x, y, z = params["x"] - 1, params["y"] + 0.5, math.log10(params["z"]) - 1
    return -(x * x + 0.5 * (y - 0.7 * x) ** 2 + z * z)
