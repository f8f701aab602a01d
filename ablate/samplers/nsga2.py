"""Optuna's NSGA-II; a generation is `population` results.

Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE TEC 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ablate.samplers.by_optuna import ByOptuna
from ablate.samplers.earlier import Earlier, draw_seed, generations
from ablate.samplers.sampling import SAMPLERS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

POPULATION = 20


@SAMPLERS.register("nsga2")
class Nsga2(ByOptuna):
    """Crosses whole proposals: an axis that did not exist stands anywhere among the genes, which it
    must not take over."""

    generations: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    def sampler(self, earlier: Sequence[Earlier]) -> BaseSampler:
        from optuna.samplers import NSGAIISampler
        from optuna.trial import TrialState

        size = self.study.population or POPULATION
        made = generations(size, earlier, lambda each: each.values is not None)

        class FromFacts(NSGAIISampler):  # type: ignore[misc]
            """Optuna's, whose generations follow from what was known when each was proposed."""

            def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
                return int(made[trial.number])

            def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
                complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
                return [trial for trial in complete if made[trial.number] == generation]

        return FromFacts(seed=draw_seed(self.key, len(earlier)), population_size=size)
