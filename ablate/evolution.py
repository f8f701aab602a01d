"""CMA-ES as a pure function of the results so far.

The state after a generation follows from that generation's results, so that it is computed afresh
for each proposal: nothing needs to be kept, and an interruption changes nothing. Numeric axes are
searched in the unit cube, from its middle with a step of 1/6 (as Optuna does); choices,
which have no order, are drawn at random. A failed proposal ranks last in its generation.
Coordinates of axes that did not exist are taken at the mean, where they pull nowhere.

Source: Hansen, "The CMA evolution strategy: a tutorial", arXiv:1604.00772, by the package `cmaes`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ablate import branches
from ablate.space import Space
from ablate.told import Told, generations, seed

SIGMA = 1 / 6


def numeric(space: Space) -> list[str]:
    return [path for path, axis in space.items() if axis.choice is None]


def population(axes: int, wanted: int | None) -> int:
    """Size of a generation: 4 + ⌊3 ln d⌋ (the tutorial's equation 48) if none is wanted."""
    return wanted or 4 + math.floor(3 * math.log(axes))


def propose(
    space: Space, key: str, earlier: Sequence[Told], wanted: int | None, maximize: bool
) -> dict[str, Any]:
    """Values by path of proposal number len(earlier)."""
    from cmaes import CMA

    axes, index = numeric(space), len(earlier)
    size = population(len(axes), wanted)
    made = generations(size, earlier, lambda told: not told.running)
    state = CMA(
        mean=np.full(len(axes), 0.5), sigma=SIGMA, bounds=np.array([[0.0, 1.0]] * len(axes)),
        population_size=size, seed=seed(key, 0), n_max_resampling=10 * len(axes),
    )  # fmt: skip
    for generation in range(made[-1]):
        members = [
            told
            for told, its in zip(earlier, made[:-1], strict=True)
            if its == generation and not told.running
        ]
        if len(members) < size:
            break  # a failure that is being retried was counted before
        places = [
            np.array([
                space[path].place(told.params[path]) if path in told.params else state.mean[i]
                for i, path in enumerate(axes)
            ])
            for told in members[:size]
        ]  # fmt: skip
        ranks = [float(rank) for rank in _ranks(members[:size], maximize)]
        state.tell(list(zip(places, ranks, strict=True)))
    state.reseed_rng(seed(key, index))
    asked = state.ask()
    drawn: dict[str, Any] = {}
    choices = random.Random(f"{key}\x1f{index}")
    for path, axis in space.items():
        place = choices.random()
        drawn[path] = axis.at(float(asked[axes.index(path)]) if path in axes else place)
    return branches.pruned(space, drawn)


def _ranks(members: Sequence[Told], maximize: bool) -> list[int]:
    """0 for the best. The search depends on ranks alone, so that a failure needs no value."""

    def loss(place: int) -> tuple[float, int]:
        values = members[place].values
        if values is None:
            return math.inf, place
        return (-values[0] if maximize else values[0]), place

    order = sorted(range(len(members)), key=loss)
    return [order.index(place) for place in range(len(members))]
