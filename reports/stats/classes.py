"""Judge rows by their differences at each class and seed, so that claims hold for further classes.

With D_cs = row − baseline at class c and seed s, and weights w_c that sum to 1 (a class's share of
the queries, so that Σ w_c D_cs is the difference of the metric itself), classes and seeds are both
random and crossed: Z_cs = (C − 1) w_c / (1 − w_c) (D_cs − D̄) = class_c + seed_s + e_cs. The factor
is 1 for equal classes, and else that of the jackknife. With the mean squares of a
two-way table, a = MS_class / (C S), b = MS_seed / (C S) and r = MS_rest / (C S), the variance of D̄
is a + b − r. The half width is

    max(t_c √a, √(t_c² max(a − r, 0) + t_s² b))

with t_c and t_s the quantiles of t at 1/Σ w_c² − 1 (C − 1 for equal classes) and S − 1 degrees of
freedom. Satterthwaite's degrees of freedom for a + b − r give up to 26 % false verdicts at two
seeds and 8 % at four (`tests/reports/stats/simulate_classes.py`), since a small b by luck leaves
both a short interval and many degrees of freedom; a quantile for each part cannot.

The claim is given the training set and its classes, of which there is one.

References:
    Howe, "Approximate confidence limits on the mean of X + Y where X and Y are two tabled
        independent random variables", JASA 69 (1974): the half width of a sum of variances.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.stats.blocks import LEVEL
from reports.stats.comparison_rule import ComparisonRule, Sample
from reports.stats.variance import DRAWS

Floats = NDArray[np.float64]


class OverClasses(ComparisonRule):
    """Bound each row's mean difference over further classes and seeds.

    Args:
        differences: row → [C, S] differences to the baseline, by class and seed.
        queries: [C], the number of queries of each class.
    """

    name = "classes × seeds"
    description = (
        "Each interval contains how differences vary over classes and over seeds, both of which "
        "count as drawn at random (two-way, Howe), at Šidák's level."
    )

    def __init__(self, differences: Mapping[str, Floats], queries: Floats) -> None:
        self.differences, self.queries = differences, queries

    def estimate_variances(self, name: str) -> "ClassVariances | None":
        """Return the parts of the variance of a row's mean difference."""
        if name not in self.differences:
            return None
        return estimate_class_variances(self.differences[name], self.queries)

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above); infinite with one class or one seed."""
        share = sample.level ** (1 / (len(sample.rows) + sample.others))
        halves = {
            name: compute_half_width(self.differences[name], self.queries, share)
            for name in sample.rows
        }
        return {name: (half, half) for name, half in halves.items()}

    def compute_error(self, name: str) -> tuple[float, int] | None:
        """Return an error and its degrees of freedom with which t gives the row's own interval.

        None for a row without a seed in common with the baseline.
        """
        from scipy import stats

        if name not in self.differences:
            return None
        df = len(self.queries) - 1
        half = compute_half_width(self.differences[name], self.queries, LEVEL)
        return half / float(stats.t.ppf((1 + LEVEL) / 2, df)), df


@dataclass(frozen=True)
class ClassVariances:
    """The parts a, b and r of the variance of D̄, of S seeds; df: of the classes."""

    between_classes: float
    between_seeds: float
    rest: float
    df: float
    seeds: int

    def compute_half_width(self, level: float) -> float:
        """Return half the interval of D̄."""
        from scipy import stats

        t_class, t_seed = stats.t.ppf((1 + level) / 2, [self.df, self.seeds - 1])
        class_part = t_class**2 * max(self.between_classes - self.rest, 0)
        both = class_part + t_seed**2 * self.between_seeds
        return float(max(t_class * self.between_classes**0.5, both**0.5))

    def draw_half_widths(self, seeds: int, level: float) -> Floats:
        """Return draws of the half-width with other seeds of the same classes; 0: infinitely many.

        They contain what is not known of the seeds' variance, and the luck of the new seeds.
        """
        from scipy import stats

        rng, ratio = np.random.default_rng(0), self.seeds / seeds if seeds else 0.0
        class_part, rest = max(self.between_classes - self.rest, 0), self.rest * ratio
        t_class, t_seed = stats.t.ppf((1 + level) / 2, [self.df, max(1, seeds - 1)])
        known = rng.chisquare(self.seeds - 1, DRAWS) / (self.seeds - 1)
        luck = rng.chisquare(max(1, seeds - 1), DRAWS) / max(1, seeds - 1)
        by_seed = self.between_seeds * ratio * luck / known
        halves = np.sqrt(t_class**2 * class_part + t_seed**2 * by_seed)
        return np.asarray(np.maximum(t_class * (class_part + rest) ** 0.5, halves))


def compute_half_width(differences: Floats, queries: Floats, level: float) -> float:
    """Return half the interval of the mean of [C, S] differences, with classes weighted by queries.

    It is infinite with one class or one seed.
    """
    variances = estimate_class_variances(differences, queries)
    return float(np.inf) if variances is None else variances.compute_half_width(level)


def estimate_class_variances(differences: Floats, queries: Floats) -> ClassVariances | None:
    """Estimate the parts of the variance of the mean; None with one class or one seed."""
    weights = queries / queries.sum()
    (classes, seeds), df = differences.shape, float(1 / (weights @ weights) - 1)
    if min(seeds - 1, df) <= 0:
        return None
    by_seed = weights @ differences
    factors = weights / (1 - weights) * (classes - 1)  # 1 for equal classes
    z = factors[:, None] * (differences - by_seed.mean())
    by_class, seed_means = z.mean(1, keepdims=True), z.mean(0)
    rest = ((z - by_class - seed_means) ** 2).sum() / (classes - 1) / (seeds - 1)
    a = float((by_class**2).sum() / (classes - 1) / classes)
    b = float(by_seed.var(ddof=1) / seeds)
    return ClassVariances(a, b, float(rest / (classes * seeds)), df, seeds)
