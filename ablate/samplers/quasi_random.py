"""Quasi-random search: a scrambled Sobol sequence over the space.

Proposal i is point i of the sequence, whose scrambling (Owen, "Scrambling Sobol' and Niederreiter–
Xing points", J. Complexity 14, 1998) is seeded by the study: it depends on no result. Axes
that do not exist at a point are left out, so that those that do stay evenly spread.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ablate.samplers import branches
from ablate.samplers.earlier import Earlier, draw_seed
from ablate.samplers.sampling import SAMPLERS, Sampler
from ablate.samplers.space import Space

MAX_AXES = 21201  # that the direction numbers of scipy go up to


@SAMPLERS.register("quasi_random")
class QuasiRandom(Sampler):
    """Proposal i is point i, whatever came of the others."""

    def propose(self, earlier: Sequence[Earlier]) -> dict[str, Any]:
        return point(self.study.space, self.key, len(earlier))


def point(space: Space, key: str, index: int) -> dict[str, Any]:
    """Values by path of the active axes at point `index`."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(len(space), scramble=True, rng=draw_seed(key, 0))
    if index:
        sequence.fast_forward(index)
    with warnings.catch_warnings():
        # The balance of whole powers of two is not promised: a budget is what it is.
        warnings.simplefilter("ignore", UserWarning)
        places = sequence.random(1)[0]
    drawn = {
        path: axis.at(float(place))
        for (path, axis), place in zip(space.items(), places, strict=True)
    }
    return branches.pruned(space, drawn)
