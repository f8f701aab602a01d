"""Samplers that draw in the unit cube of the axes themselves: a Sobol sequence, and CMA-ES."""

import math
import random
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

from ablate.search.sampling import (
    SAMPLERS,
    ObservedTrial,
    Sampler,
    Sampling,
    assign_generations,
    draw_seed,
)
from ablate.search.space import drop_inactive
from trainables.words.errors import ConfigError


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
        return drop_inactive(
            space, {path: axis.draw_at(float(position)) for (path, axis), position in axes}
        )


SIGMA = 1 / 6


@SAMPLERS.register("cmaes")
class CmaEs(Sampler):
    """Sample by CMA-ES, with the package `cmaes`, for one objective and at least one numeric axis.

    Numeric axes are searched in the unit cube, from its centre with a step of 1/6 (as in Optuna).
    Choices have no order and are drawn at random. A failed proposal ranks last in its generation.
    Inactive axes are set to the mean, where they do not move it. Priors give the first mean and
    covariance, and the probabilities of choices.

    References:
        Hansen, "The CMA evolution strategy: a tutorial", https://arxiv.org/abs/1604.00772.
    """

    generations: ClassVar[bool] = True
    uses_priors: ClassVar[bool] = True

    @classmethod
    def check(cls, study: Sampling) -> None:
        """Check that a search has one objective and at least one numeric axis."""
        super().check(study)
        if len(study.directions) > 1:
            raise ConfigError(
                "objectives",
                f"cmaes takes one objective, not {len(study.directions)}",
                "Use the sampler nsga2, tpe or gp",
            )
        if all(axis.choice is not None for axis in study.space.values()):
            raise ConfigError("sampler", "cmaes needs a numeric axis", "Use the sampler tpe")

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Rebuild the state of CMA-ES from the earlier generations, and draw the next proposal."""
        import numpy as np
        from cmaes import CMA

        # assign the results to generations
        space = self.study.space
        axes = [path for path, axis in space.items() if axis.choice is None]
        # the default population is that of equation 48 in Hansen's CMA-ES tutorial
        size = self.study.population or 4 + math.floor(3 * math.log(len(axes)))
        generations = assign_generations(size, earlier, lambda trial: not trial.running)
        # start at the priors' guesses, or at the middle of axes without a prior
        mean, widths = np.full(len(axes), 0.5), np.full(len(axes), SIGMA)
        for i, axis in enumerate(space[path] for path in axes):
            if axis.prior is not None:
                mean[i], widths[i] = axis.locate_prior()
        # replay the generations
        state = CMA(
            mean=mean,
            sigma=SIGMA,
            cov=np.diag((widths / SIGMA) ** 2),
            bounds=np.array([[0.0, 1.0]] * len(axes)),
            population_size=size,
            seed=draw_seed(self.key, 0),
            n_max_resampling=10 * len(axes),
        )
        for generation in range(generations[-1]):
            numbered = zip(earlier, generations[:-1], strict=True)
            members = [trial for trial, n in numbered if n == generation and not trial.running]
            if len(members) < size:
                break  # a trial that had failed, and counted, runs again
            members = members[:size]
            # CMA-ES depends only on ranks (0 is best), so a failure needs no value.
            ranks = np.argsort(
                np.argsort([self._compute_loss(trial) for trial in members], kind="stable")
            )
            solutions = []  # positions in the unit cube, inactive axes at the mean, with the rank
            for trial, rank in zip(members, ranks, strict=True):
                positions = [
                    space[path].locate_value(trial.params[path]) if path in trial.params else mean
                    for path, mean in zip(axes, state.mean, strict=True)
                ]
                solutions.append((np.array(positions), float(rank)))
            state.tell(solutions)
        # draw the proposal
        state.reseed_rng(draw_seed(self.key, len(earlier)))
        coordinates = dict(zip(axes, state.ask(), strict=True))
        choices = random.Random(f"{self.key}\x1f{len(earlier)}")  # for axes of choices
        drawn: dict[str, Any] = {}
        for path, axis in space.items():
            position = choices.random()
            if path in coordinates:
                drawn[path] = axis.value_at(float(coordinates[path]))
            else:
                drawn[path] = axis.draw_at(position)
        return drop_inactive(space, drawn)

    def _compute_loss(self, proposal: ObservedTrial) -> float:
        if proposal.values is None:
            return math.inf
        value = proposal.values[0]
        return -value if self.study.directions[0] == "maximize" else value
