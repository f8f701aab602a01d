"""Hyperparameter importances of a search's trials, by Optuna's evaluators, and axes with a step.

Optuna is imported when it is asked for: a report without a search needs none of it.

The values of an axis with a step are computed as YAML writes them, in decimal: in floats
0.1 + 2 · 0.1 is 0.30000000000000004, which lies above an axis that ends at 0.3. Samplers of version
0.2 and before proposed such values, so ledgers have them.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

TINY = 1e-9  # part of a step by which a value or an end may miss a level


@dataclass(frozen=True)
class Levels:
    """The values low + i · step up to `high`, which need not be one of them."""

    low: float
    high: float
    step: float

    @property
    def count(self) -> int:
        low, high, step = (Decimal(str(number)) for number in (self.low, self.high, self.step))
        return int((high - low) / step + Decimal(TINY)) + 1

    @property
    def end(self) -> float:
        """The highest level."""
        return self.compute_value(self.count - 1)

    def compute_value(self, index: int) -> float:
        """Return level number `index`, from 0."""
        value = Decimal(str(self.low)) + index * Decimal(str(self.step))
        return float(min(value, Decimal(str(self.high))))

    def find_nearest(self, value: float) -> int:
        """Return the number of the level nearest to a value."""
        return min(max(round((value - self.low) / self.step), 0), self.count - 1)

    def to_level(self, value: float) -> float:
        """Return the level from which a value differs by rounding alone; else the value itself."""
        if not self.low - self.step < value < self.high + self.step:
            return value
        level = self.compute_value(self.find_nearest(value))
        is_level = math.isclose(value, level, rel_tol=1e-15, abs_tol=TINY * self.step)
        return level if is_level else value


if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

EVALUATORS = {"ped_anova": "PED-ANOVA", "fanova": "fANOVA"}
BEST_SHARE = 0.1  # of the trials, which PED-ANOVA compares with all
LEAST = 50  # trials; of fewer the shares are noise


@dataclass(frozen=True)
class Importances:
    """Shares of each parameter, summing to one, largest first (all zero for equal values).

    evaluator: its name and settings. n: trials used. conditional: parameters that some trials
    lack; dropped: those of them that the evaluator cannot judge.
    """

    evaluator: str
    shares: dict[str, float]
    n: int
    conditional: tuple[str, ...]
    dropped: tuple[str, ...]
    warnings: tuple[str, ...]


def compute_importances(
    params: Sequence[Mapping[str, Any]],
    values: Sequence[float],
    space: Mapping[str, Mapping[str, Any]],
    *,
    evaluator: Literal["ped_anova", "fanova"] = "ped_anova",
) -> Importances | None:
    """Return how much each parameter matters for a large value; None for fewer than 50 trials.

    ped_anova: Pearson divergence between the densities of a parameter among the best trials and
        among all, both by Parzen windows, as a share of the sum over parameters. The best are the
        best tenth of the trials. Conditional parameters are judged where they are active.
        Source: Watanabe, Bansal and Hutter, "PED-ANOVA" (IJCAI 2023); Optuna's implementation.
    fanova: share of the variance of a random forest's prediction over the whole space that each
        parameter explains alone, interactions left out, renormalised to one. Conditional parameters
        are dropped: Optuna's forest takes only what every trial has. Source: Hutter, Hoos and
        Leyton-Brown (ICML 2014); Optuna's implementation.

    Args:
        params: per trial, its values by path. Trials with no finite value are left out.
        values: per trial, the mean objective; larger is better.
        space: per path `{low, high}` with `log`, `int` or `step`, or `{choice: [...]}`; a path
            that no trial has is left out.
    """
    trials = [(dict(p), float(v)) for p, v in zip(params, values, strict=True) if math.isfinite(v)]
    n = len(trials)
    if n < LEAST:
        return None
    counts = {path: sum(path in point for point, _ in trials) for path in space}
    conditional = tuple(path for path, count in counts.items() if 0 < count < n)
    dropped = conditional if evaluator == "fanova" else ()
    assessed = [path for path, count in counts.items() if count and path not in dropped]
    is_flat = len({value for _, value in trials}) == 1
    best = math.ceil(BEST_SHARE * n)
    shares = dict.fromkeys(assessed, 0.0)
    if assessed and not is_flat:
        shares = _run_evaluator(trials, space, assessed, evaluator, best / n)
    name, cautions = EVALUATORS[evaluator], []
    if is_flat:
        cautions.append("all trials have the same value, so nothing can matter")
    if dropped:
        cautions.append(f"{name} cannot judge conditional parameters, which are left out")
    used = f"the best {best} of {n} trials" if evaluator == "ped_anova" else f"{n} trials"
    return Importances(f"{name} of {used}", shares, n, conditional, dropped, tuple(cautions))


def _run_evaluator(
    trials: Sequence[tuple[dict[str, Any], float]],
    space: Mapping[str, Mapping[str, Any]],
    assessed: list[str],
    evaluator: str,
    target: float,
) -> dict[str, float]:
    """Return each assessed parameter's share of importance, largest first, by Optuna's evaluator.

    Args:
        target: share of the trials that count as the best ones, for PED-ANOVA.
    """
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    axes = {path: _to_distribution(axis) for path, axis in space.items()}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `Importances` has its own warnings
            judge: Any = PedAnovaImportanceEvaluator(target_quantile=target)
            if evaluator == "fanova":
                judge = FanovaImportanceEvaluator(seed=0)
            study = optuna.create_study(direction="maximize")
            for point, value in trials:
                params = {path: _to_optuna_value(v, space[path]) for path, v in point.items()}
                kinds = {path: axes[path] for path in params}
                trial = optuna.trial.create_trial(value=value, params=params, distributions=kinds)
                study.add_trial(trial)
            compute = optuna.importance.get_param_importances
            raw_shares = compute(study, evaluator=judge, params=assessed, normalize=False)
    finally:
        optuna.logging.set_verbosity(verbosity)
    total = sum(raw_shares.values())
    shares = {path: (share / total if total > 0 else 0.0) for path, share in raw_shares.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _to_distribution(axis: Mapping[str, Any]) -> "BaseDistribution":
    """Return the Optuna distribution of an axis; of a choice, over the indices of its options."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.get("choice") is not None:
        return CategoricalDistribution(tuple(range(len(axis["choice"]))))
    low, high, step, log = axis["low"], axis["high"], axis.get("step"), bool(axis.get("log"))
    if step:
        high = Levels(low, high, step).end
    if axis.get("int"):
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(low, high, log=log, step=step)


def _to_optuna_value(value: Any, axis: Mapping[str, Any]) -> Any:
    """Return a value as Optuna has it: a number, with a step a level, or the index of a choice."""
    if axis.get("choice") is not None:
        return list(axis["choice"]).index(value)
    if not axis.get("step"):
        return value
    return Levels(axis["low"], axis["high"], axis["step"]).to_level(value)
