"""Optuna's Gaussian process; a failure counts as the worst value so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.samplers.by_optuna import ByOptuna
from ablate.samplers.earlier import Earlier, draw_seed
from ablate.samplers.sampling import SAMPLERS
from ablate.samplers.space import Axis

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@SAMPLERS.register("gp")
class GaussianProcess(ByOptuna):
    """Models all axes at once: one that did not exist stands in the middle."""

    whole: ClassVar[bool] = True

    def sampler(self, earlier: Sequence[Earlier]) -> BaseSampler:
        from optuna.samplers import GPSampler

        return GPSampler(
            seed=draw_seed(self.key, len(earlier)), n_startup_trials=self.study.startup
        )

    def absent(self, axis: Axis, place: float) -> Any:
        return axis.at(0.5)

    def seen(self, earlier: Sequence[Earlier]) -> Sequence[Earlier]:
        known = [each.values for each in earlier if each.values is not None and not each.running]
        if not known:
            return earlier
        worst = tuple(
            min(column) if direction == "maximize" else max(column)
            for direction, column in zip(
                self.study.directions, zip(*known, strict=True), strict=True
            )
        )
        return [
            replace(each, value=worst) if each.values is None and not each.running else each
            for each in earlier
        ]
