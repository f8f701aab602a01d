"""Optuna's samplers, each proposal by a new Optuna study.

Earlier proposals are added to it as trials, those without a result as running ones; then it
suggests the next value of each axis. No state of Optuna is stored.
"""

import random
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.search.sampling import SAMPLERS, ObservedTrial, Sampler, assign_generations, draw_seed
from ablate.search.space import Axis, Space, drop_inactive, is_active, order_axes

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

POPULATION = 20


class ByOptuna(Sampler):
    """Base of samplers that use one of Optuna's.

    Attributes:
        history: whether proposals depend on earlier results.
        whole: whether all axes are modelled, inactive ones at `place_inactive`.
    """

    history: ClassVar[bool] = True
    whole: ClassVar[bool] = False
    uses_priors: ClassVar[bool] = True

    def build_sampler(self, seed: int, earlier: Sequence[ObservedTrial]) -> "BaseSampler":
        """Build Optuna's sampler for proposal number len(earlier)."""
        raise NotImplementedError

    def select_history(self, earlier: Sequence[ObservedTrial]) -> Sequence[ObservedTrial]:
        """Return the earlier proposals that Optuna's study is given."""
        return earlier

    def place_inactive(self, axis: Axis, position: float) -> Any:
        """Return an inactive axis's value in Optuna's study; `position` is random in [0, 1)."""
        return axis.value_at(position)

    def propose(self, earlier: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Return the active axes' values that Optuna suggests, given the earlier proposals."""
        import optuna
        from optuna.trial import TrialState

        # build Optuna's study of the earlier proposals
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        directions, space = list(self.study.directions), self.study.space
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = self.build_sampler(draw_seed(self.key, len(earlier)), earlier)
            study = optuna.create_study(directions=directions, sampler=sampler)
            for index, proposal in enumerate(self.select_history(earlier) if self.history else ()):
                study.add_trial(self._build_frozen_trial(index, proposal))
        # draw from the priors while Optuna's sampler draws at random
        first = self.study.population or POPULATION if self.generations else self.study.startup
        states = [TrialState.COMPLETE] if self.whole else [TrialState.COMPLETE, TrialState.PRUNED]
        has_prior = any(axis.prior is not None for axis in space.values())
        if has_prior and len(study.get_trials(deepcopy=False, states=states)) < first:
            draw = random.Random(f"{self.key}\x1f{len(earlier)}\x1fprior")
            draws = {path: axis.draw_at(draw.random()) for path, axis in space.items()}
            return drop_inactive(space, draws)
        # suggest a value for each axis, after the axes that it depends on
        return suggest_values(study.ask(), space, whole=self.whole)

    def _build_frozen_trial(self, index: int, proposal: ObservedTrial) -> "FrozenTrial":
        """Convert an earlier proposal to a trial of Optuna.

        A failure becomes a pruned trial: TPE ranks it below the finished ones, by the epoch that it
        reached. With several objectives TPE cannot rank it, so it becomes a failed trial. In a
        search with limits, the excess is Optuna's constraint, and TPE ranks an infeasible proposal
        below all others, by its excess.
        """
        from optuna.trial import TrialState, create_trial

        is_multi_objective, space = len(self.study.directions) > 1, self.study.space
        excess = proposal.excess  # None without limits
        params, reports = proposal.params, dict[int, float]()
        if self.whole:  # the sampler models all axes: add the inactive ones
            draw = random.Random(f"{self.key}\x1f{index}\x1fabsent")
            params = {
                path: proposal.params.get(path, self.place_inactive(axis, draw.random()))
                for path, axis in space.items()
            }
        state, values = TrialState.COMPLETE, proposal.values
        if proposal.running:
            state, values = TrialState.RUNNING, None
        elif values is None:
            is_failure = is_multi_objective and not proposal.is_infeasible
            state = TrialState.FAIL if is_failure else TrialState.PRUNED
            reports = {} if is_multi_objective else dict(proposal.reports)
        return create_trial(
            state=state,
            values=values,
            intermediate_values=reports,
            params={path: space[path].to_optuna(value) for path, value in params.items()},
            distributions={path: space[path].to_optuna_distribution() for path in params},
            constraints=None if excess is None or proposal.running else {"limits": excess},
        )


def suggest_values(trial: Any, space: Space, *, whole: bool = False) -> dict[str, Any]:
    """Return the active axes' values that a trial suggests; with `whole` it suggests all axes."""
    drawn: dict[str, Any] = {}
    for path in order_axes(space):
        if whole or is_active(space, path, drawn):
            drawn[path] = _suggest(trial, path, space[path])
    return drop_inactive(space, drawn)


def _suggest(trial: Any, path: str, axis: Axis) -> Any:
    """Return the value that a trial of Optuna suggests for an axis."""
    if axis.choice is not None:
        return axis.choice[trial.suggest_categorical(path, list(range(len(axis.choice))))]
    bounds: Any = axis.to_optuna_distribution()
    suggest_number = trial.suggest_int if axis.whole else trial.suggest_float
    value = suggest_number(path, bounds.low, bounds.high, step=bounds.step, log=bounds.log)
    return axis.to_level(value)


@SAMPLERS.register("tpe")
class Tpe(ByOptuna):
    """Sample by the tree-structured Parzen estimator, the default sampler.

    It is multivariate, counts running proposals by a constant liar, takes several objectives, and
    groups the axes of conditional branches.

    References:
        Bergstra et al., "Algorithms for hyper-parameter optimization", NIPS 2011.

    Example:
        >>> axis = {"low": 1e-4, "high": 1e-2, "log": True}
        >>> study = Search(design="search", sampler="tpe", trials=8, space={"optimizer.lr": axis})
        >>> proposal = Tpe(study, key="tune").propose([])
        >>> 1e-4 <= proposal["optimizer.lr"] <= 1e-2
        True
    """

    def build_sampler(self, seed: int, earlier: Sequence[ObservedTrial]) -> "BaseSampler":
        """Build Optuna's TPE; it groups axes if some are active only under a condition."""
        from optuna.samplers import TPESampler

        return TPESampler(
            seed=seed,
            n_startup_trials=self.study.startup,
            multivariate=True,
            constant_liar=True,
            group=any(axis.when for axis in self.study.space.values()),
        )


@SAMPLERS.register("random")
class Independent(ByOptuna):
    """Sample at random: every proposal is an independent draw.

    References:
        Bergstra and Bengio, "Random search for hyper-parameter optimization", JMLR 13 (2012).
    """

    history: ClassVar[bool] = False

    def build_sampler(self, seed: int, earlier: Sequence[ObservedTrial]) -> "BaseSampler":
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=seed)


@SAMPLERS.register("gp")
class GaussianProcess(ByOptuna):
    """Sample by a Gaussian process over all axes, from Optuna.

    Inactive axes are set to their middle, and a failure counts as the worst value so far.
    """

    whole: ClassVar[bool] = True

    def build_sampler(self, seed: int, earlier: Sequence[ObservedTrial]) -> "BaseSampler":
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, n_startup_trials=self.study.startup)

    def place_inactive(self, axis: Axis, position: float) -> Any:
        return axis.value_at(0.5)

    def select_history(self, earlier: Sequence[ObservedTrial]) -> Sequence[ObservedTrial]:
        """Return the earlier proposals, each failure with the worst values observed so far."""
        observed = [item.values for item in earlier if item.values is not None and not item.running]
        if not observed:
            return earlier
        by_objective = zip(self.study.directions, zip(*observed, strict=True), strict=True)
        worst = tuple(
            min(values) if goal == "maximize" else max(values) for goal, values in by_objective
        )
        return [
            replace(item, value=worst) if item.values is None and not item.running else item
            for item in earlier
        ]


@SAMPLERS.register("nsga2")
class Nsga2(ByOptuna):
    """Sample by NSGA-II, with generations of `population` results.

    Since it crosses whole proposals, inactive axes get random values, which have no effect.

    References:
        Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE
        Transactions on Evolutionary Computation 6 (2002).
    """

    generations: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    def build_sampler(self, seed: int, earlier: Sequence[ObservedTrial]) -> "BaseSampler":
        """Build NSGA-II with generations from recorded results, since its study is always new."""
        from optuna.samplers import NSGAIISampler
        from optuna.trial import TrialState

        size = self.study.population or POPULATION
        generations = assign_generations(
            size, earlier, lambda observed: observed.values is not None
        )

        class FromFacts(NSGAIISampler):  # type: ignore[misc]
            """Optuna's sampler with generations recomputed from the recorded results."""

            def get_trial_generation(self, study: "Study", trial: "FrozenTrial") -> int:
                return int(generations[trial.number])

            def get_population(self, study: "Study", generation: int) -> "list[FrozenTrial]":
                complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
                return [trial for trial in complete if generations[trial.number] == generation]

        return FromFacts(seed=seed, population_size=size)
