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
from ablate.samplers.history import ObservedTrial, draw_seed
from ablate.samplers.sampling import SAMPLERS, Sampler


@SAMPLERS.register("quasi_random")
class QuasiRandom(Sampler):
    """Proposal i is point i, whatever came of the others.

    Example:
        >>> axis = {"low": 1e-4, "high": 1e-2, "log": True}
        >>> study = Search(design="search", sampler="quasi_random", trials=8,
        ...     space={"optimizer.lr": axis})
        >>> proposal = QuasiRandom(study, key="tune").propose([])
        >>> 1e-4 <= proposal["optimizer.lr"] <= 1e-2
        True
    """

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        from scipy.stats import qmc

        space = self.study.space
        sequence = qmc.Sobol(len(space), scramble=True, rng=draw_seed(self.key, 0))
        if earlier:
            sequence.fast_forward(len(earlier))
        with warnings.catch_warnings():
            # The balance of whole powers of two is not promised: a budget is what it is.
            warnings.simplefilter("ignore", UserWarning)
            positions = sequence.random(1)[0]
        axes = zip(space.items(), positions, strict=True)
        return branches.drop_inactive(
            space, {path: axis.value_at(float(position)) for (path, axis), position in axes}
        )
