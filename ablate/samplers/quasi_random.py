"""Quasi-random search by a scrambled Sobol sequence."""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from ablate.samplers import branches
from ablate.samplers.history import ObservedTrial, draw_seed
from ablate.samplers.sampling import SAMPLERS, Sampler


@SAMPLERS.register("quasi_random")
class QuasiRandom(Sampler):
    """Sample point i of a scrambled Sobol sequence as proposal i, whatever the results are.

    The study seeds the scrambling. Inactive axes are left out, so that active ones stay evenly
    spread, or spread as their priors say.

    References:
        Owen, "Scrambling Sobol' and Niederreiter–Xing points", Journal of Complexity 14 (1998).
    """

    uses_priors: ClassVar[bool] = True

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Return point number len(earlier) of the Sobol sequence as values of the active axes."""
        from scipy.stats import qmc

        space = self.study.space
        sequence = qmc.Sobol(len(space), scramble=True, rng=draw_seed(self.key, 0))
        if earlier:
            sequence.fast_forward(len(earlier))
        with warnings.catch_warnings():
            # Ignore that only powers of two are balanced: budgets may have any size.
            warnings.simplefilter("ignore", UserWarning)
            positions = sequence.random(1)[0]
        axes = zip(space.items(), positions, strict=True)
        return branches.drop_inactive(
            space, {path: axis.draw_at(float(position)) for (path, axis), position in axes}
        )
