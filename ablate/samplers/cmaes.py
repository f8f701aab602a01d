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
from typing import Any, ClassVar

from ablate.samplers import branches
from ablate.samplers.earlier import Earlier, draw_seed, generations
from ablate.samplers.sampling import SAMPLERS, Sampler, Sampling
from ablate.samplers.space import Space
from trainables.errors import ConfigError

SIGMA = 1 / 6


@SAMPLERS.register("cmaes")
class CmaEs(Sampler):
    """For one objective, in a space with a numeric axis."""

    generations: ClassVar[bool] = True

    @classmethod
    def check(cls, study: Sampling) -> None:
        super().check(study)
        if len(study.directions) > 1:
            raise ConfigError(
                "objectives",
                f"{len(study.directions)} of them",
                "one with cmaes",
                "Take nsga2, tpe or gp",
            )
        if not numeric(study.space):
            raise ConfigError(
                "sampler", "cmaes in a space of choices only", "a numeric axis", "Take tpe"
            )

    def propose(self, earlier: Sequence[Earlier]) -> dict[str, Any]:
        maximize = self.study.directions[0] == "maximize"
        return propose(self.study.space, self.key, earlier, self.study.population, maximize)


def numeric(space: Space) -> list[str]:
    return [path for path, axis in space.items() if axis.choice is None]


def population(axes: int, wanted: int | None) -> int:
    """Size of a generation: 4 + ⌊3 ln d⌋ (the tutorial's equation 48) if none is wanted."""
    return wanted or 4 + math.floor(3 * math.log(axes))


def propose(
    space: Space, key: str, earlier: Sequence[Earlier], wanted: int | None, maximize: bool
) -> dict[str, Any]:
    """Values by path of proposal number len(earlier)."""
    import numpy as np
    from cmaes import CMA

    axes, index = numeric(space), len(earlier)
    size = population(len(axes), wanted)
    made = generations(size, earlier, lambda each: not each.running)
    state = CMA(
        mean=np.full(len(axes), 0.5),
        sigma=SIGMA,
        bounds=np.array([[0.0, 1.0]] * len(axes)),
        population_size=size,
        seed=draw_seed(key, 0),
        n_max_resampling=10 * len(axes),
    )
    for generation in range(made[-1]):
        members = [
            each
            for each, its in zip(earlier, made[:-1], strict=True)
            if its == generation and not each.running
        ]
        if len(members) < size:
            break  # a failure that is being retried was counted before
        places = [
            np.array(
                [
                    space[path].place(each.params[path]) if path in each.params else state.mean[i]
                    for i, path in enumerate(axes)
                ]
            )
            for each in members[:size]
        ]
        ranks = [float(rank) for rank in _ranks(members[:size], maximize)]
        state.tell(list(zip(places, ranks, strict=True)))
    state.reseed_rng(draw_seed(key, index))
    asked = state.ask()
    drawn: dict[str, Any] = {}
    choices = random.Random(f"{key}\x1f{index}")
    for path, axis in space.items():
        place = choices.random()
        drawn[path] = axis.at(float(asked[axes.index(path)]) if path in axes else place)
    return branches.pruned(space, drawn)


def _ranks(members: Sequence[Earlier], maximize: bool) -> list[int]:
    """0 for the best. The search depends on ranks alone, so that a failure needs no value."""

    def loss(place: int) -> tuple[float, int]:
        values = members[place].values
        if values is None:
            return math.inf, place
        return (-values[0] if maximize else values[0]), place

    order = sorted(range(len(members)), key=loss)
    return [order.index(place) for place in range(len(members))]
