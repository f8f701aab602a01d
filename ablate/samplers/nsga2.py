"""Optuna's NSGA-II; a generation is `population` results.

Source: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE TEC 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.samplers.by_optuna import ByOptuna
from ablate.samplers.earlier import Earlier, draw_seed, generations
from ablate.samplers.sampling import SAMPLERS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

POPULATION = 20


@SAMPLERS.register("nsga2")
class Nsga2(ByOptuna):
    """Crosses whole proposals: an axis that did not exist stands anywhere among the genes, which it
    must not take over."""

    generations: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """Of a generation."""
        return self.study.population or POPULATION

    def sampler(self, index: int) -> BaseSampler:
        from optuna.samplers import NSGAIISampler

        return NSGAIISampler(seed=draw_seed(self.key, index), population_size=self.size)

    def marks(self, earlier: Sequence[Earlier]) -> list[dict[str, Any]]:
        from optuna.samplers import NSGAIISampler

        made = generations(self.size, earlier, lambda each: each.values is not None)
        name = NSGAIISampler._get_generation_key()
        return [{name: generation} for generation in made[:-1]]
