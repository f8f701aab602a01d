"""What the samplers of Optuna share: a study that is made afresh for each proposal.

Earlier proposals are told as trials, those without a result as running, and one more is asked for,
axis by axis. Nothing of Optuna's own state is kept.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.samplers import branches
from ablate.samplers.earlier import Earlier
from ablate.samplers.sampling import Sampler
from ablate.samplers.space import Axis

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


class ByOptuna(Sampler):
    """A sampler of Optuna's.

    Attributes:
        history: whether earlier results bear on it.
        whole: it models every axis at once: where one does not exist, it stands at `absent`.
    """

    history: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def sampler(self, earlier: Sequence[Earlier]) -> BaseSampler:
        """Optuna's, for proposal number len(earlier)."""
        raise NotImplementedError

    def seen(self, earlier: Sequence[Earlier]) -> Sequence[Earlier]:
        """The earlier proposals as it is to see them."""
        return earlier

    def absent(self, axis: Axis, place: float) -> Any:
        """Where an axis that does not exist stands; `place` is drawn for it in [0, 1)."""
        return axis.at(place)

    def propose(self, earlier: Sequence[Earlier]) -> dict[str, Any]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        directions, space = list(self.study.directions), self.study.space
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            made = optuna.create_study(directions=directions, sampler=self.sampler(earlier))
            for index, proposal in enumerate(self.seen(earlier) if self.history else ()):
                made.add_trial(self._frozen(index, proposal))
        trial, drawn = made.ask(), dict[str, Any]()
        for path in branches.order(space):  # each axis after those it depends on
            if self.whole or branches.active(space, path, drawn):
                drawn[path] = _suggested(trial, path, space[path])
        return branches.pruned(space, drawn)

    def _frozen(self, index: int, proposal: Earlier) -> FrozenTrial:
        """TPE ranks pruned trials below all others, those that got farther first. It cannot tell
        with several objectives, whose failures it then leaves out."""
        from optuna.trial import TrialState, create_trial

        several, space = len(self.study.directions) > 1, self.study.space
        params, reports = proposal.params, dict[int, float]()
        if self.whole:  # all axes, those too that did not exist
            draw = random.Random(f"{self.key}\x1f{index}\x1fabsent")
            params = {
                path: proposal.params.get(path, self.absent(axis, draw.random()))
                for path, axis in space.items()
            }
        state, values = TrialState.COMPLETE, proposal.values
        if proposal.running:
            state, values = TrialState.RUNNING, None
        elif values is None:
            state = TrialState.FAIL if several else TrialState.PRUNED
            reports = {} if several else dict(proposal.reports)
        return create_trial(
            state=state,
            values=values,
            intermediate_values=reports,
            params={path: space[path].drawn(value) for path, value in params.items()},
            distributions={path: space[path].distribution() for path in params},
        )


def _suggested(trial: Any, path: str, axis: Axis) -> Any:
    if axis.choice is not None:
        return axis.value(trial.suggest_categorical(path, list(range(len(axis.choice)))))
    spread: Any = axis.distribution()
    suggest = trial.suggest_int if axis.whole else trial.suggest_float
    return suggest(path, spread.low, spread.high, step=spread.step, log=spread.log)
