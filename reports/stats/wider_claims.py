"""Rules whose claims reach further than seeds: over further classes, and over further searches.

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
both a short interval and many degrees of freedom; a quantile for each part cannot. The claim is
given the training set and its classes, of which there is one.

A rule bounds how the means over K searches scatter between blocks (seeds or splits). It cannot know
that all blocks share the values which the searches found: its half width h alone gives up to 100 %
false verdicts. The half width that contains both is √(h² + g²), with g the half width that the
default rule gives the means over blocks of each search, as if searches were blocks: it contains how
much the row's difference to the baseline scatters between searches. Its shared errors win degrees
of freedom where searches are few.

References:
    Howe, "Approximate confidence limits on the mean of X + Y where X and Y are two tabled
        independent random variables", JASA 69 (1974): the half width of a sum of variances.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.kinds import DEFAULT_RULE
from reports.stats.blocks import LEVEL, Blocks, align_blocks, find_originals
from reports.stats.comparison_rule import LEAST_EQUAL, ComparisonRule, Sample, load_rule
from reports.stats.planning import DRAWS

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


class OverSearches(ComparisonRule):
    """Widen the intervals of a rule by the scatter of searches.

    Args:
        rule: the rule, which sees the means over searches.
        searches: the values of each search, at the blocks which all searches have.
    """

    def __init__(self, rule: ComparisonRule, searches: Sequence[Sample]) -> None:
        """Take the rule's name and description, since it gives one part of the intervals."""
        self.rule, self.searches = rule, searches
        self.name, self.description = rule.name, rule.description  # type: ignore[misc]

    def compute_half_widths(self, sample: Sample) -> Mapping[str, tuple[float, float]]:
        """Return each row's half width (below, above), of the rule and the searches together."""
        gaps = {name: dict(enumerate(self.compute_means(name))) for name in sample.rows}
        zeros = dict.fromkeys(range(len(self.searches)), 0.0)
        by_search = replace(sample, baseline=zeros, rows=gaps, first_stage=None, planned=None)
        further = load_rule(DEFAULT_RULE).compute_half_widths(by_search)
        return {
            name: (
                float(np.hypot(below, further[name][0])),
                float(np.hypot(above, further[name][1])),
            )
            for name, (below, above) in self.rule.compute_half_widths(sample).items()
        }

    def compute_means(self, name: str) -> list[float]:
        """Return a row's mean difference to the baseline in each search."""
        return [float(search.compute_differences(name).mean()) for search in self.searches]

    def compute_sd(self, name: str) -> float:
        """Return the standard deviation of a row's mean difference between the searches."""
        return stdev(self.compute_means(name))


def find_originals_of(
    searches: Sequence[Sample], baseline: str, resolution: float
) -> dict[str, str]:
    """Map each row to the first row that equals it in every search, or to itself."""
    joined: dict[str, dict[int, float]] = {}
    for k, search in enumerate(searches):
        for name, values in {baseline: search.baseline, **search.rows}.items():
            keys = {(k << 32) + block: value for block, value in values.items()}
            joined.setdefault(name, {}).update(keys)
    return find_originals(joined, resolution, LEAST_EQUAL)


def average_searches(searches: Sequence[Mapping[str, Blocks]]) -> dict[str, dict[int, float]]:
    """Return row → block → mean over the searches, at the blocks that all searches have."""
    averages = {}
    for name in searches[0]:
        rows = [search.get(name, {}) for search in searches]
        common = [block for block in rows[0] if all(block in row for row in rows)]
        averages[name] = {block: fmean(row[block] for row in rows) for block in common}
    return averages


@dataclass(frozen=True)
class ClassValues:
    """The values of a row at one seed: means and numbers of queries [C] of the same classes."""

    digest: str  # of the classes' names
    means: Floats
    queries: Floats

    def has_classes_of(self, other: "ClassValues") -> bool:
        """Return whether both are of the same classes with the same numbers of queries."""
        return self.digest == other.digest and np.array_equal(self.queries, other.queries)


def average_records(records: Sequence[Mapping[str, Any] | None], metric: str) -> ClassValues | None:
    """Return the mean of trials' values by class; None if one lacks them or has other classes."""
    known = [record for record in records if record and metric in record["metrics"]]
    sizes = {(r["digest"], tuple(n for _, n in r["metrics"][metric])) for r in known}
    if len(known) < len(records) or len(sizes) != 1:
        return None
    ((digest, queries),) = sizes
    means = np.mean([[mean for mean, _ in r["metrics"][metric]] for r in known], axis=0)
    return ClassValues(digest, means, np.array(queries, np.float64))


def build_class_rule(
    values: Mapping[str, Mapping[int, ClassValues]], sample: Sample, baseline: str
) -> OverClasses | None:
    """Return the rule over classes and seeds for the rows of a sample.

    It is None if a run of a row or its baseline has no values, or values of other classes, and if
    no class has a query.
    """
    base, differences, first = values.get(baseline, {}), dict[str, Floats](), None
    for name in sample.rows:
        row, gaps = align_blocks(base, values.get(name, {})), []
        for seed in sample.list_common_blocks(name):
            if seed not in row or seed not in base:
                return None
            first = first or base[seed]
            if not all(side.has_classes_of(first) for side in (row[seed], base[seed])):
                return None
            gaps.append(row[seed].means - base[seed].means)
        if gaps:
            differences[name] = np.stack(gaps, 1)
    if first is None or not first.queries.any():
        return None
    has_queries = first.queries > 0
    by_row = {name: gaps[has_queries] for name, gaps in differences.items()}
    return OverClasses(by_row, first.queries[has_queries])
