"""Optuna's tree-structured Parzen estimator.

Multivariate, with a constant liar for what is running, several objectives, and groups of axes where
branches are conditional.

Source: Bergstra et al., "Algorithms for hyper-parameter optimization", NIPS 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.samplers import branches
from ablate.samplers.by_optuna import ByOptuna
from ablate.samplers.earlier import Earlier, draw_seed
from ablate.samplers.sampling import SAMPLERS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("tpe")
class Tpe(ByOptuna):
    """The default."""

    def sampler(self, earlier: Sequence[Earlier]) -> BaseSampler:
        from optuna.samplers import TPESampler

        return TPESampler(
            seed=draw_seed(self.key, len(earlier)),
            n_startup_trials=self.study.startup,
            multivariate=True,
            constant_liar=True,
            group=branches.conditional(self.study.space),
        )
