"""Random search: every proposal is an independent draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ablate.samplers.by_optuna import ByOptuna
from ablate.samplers.earlier import Earlier, draw_seed
from ablate.samplers.sampling import SAMPLERS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("random")
class Independent(ByOptuna):
    """Optuna's random sampler."""

    history: ClassVar[bool] = False

    def sampler(self, earlier: Sequence[Earlier]) -> BaseSampler:
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=draw_seed(self.key, len(earlier)))
