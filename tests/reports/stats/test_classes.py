"""Intervals over classes and seeds: by hand, at their limits, and as often wrong as they may be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reports.stats.comparison_rule import Sample, judge
from reports.stats.wider_claims import OverClasses, compute_half_width, estimate_class_variances
from tests.reports.stats import simulate_classes as simulated
from tests.reports.stats.simulate_classes import Setting

EQUAL = np.full(4, 7.0)


def test_classes_alone_by_hand() -> None:
    # every seed has the same differences: only classes scatter
    gaps = np.array([1.0, 2.0, 4.0, 5.0])
    half = stats.t.ppf(0.975, 3) * gaps.std(ddof=1) / 2
    repeated = np.repeat(gaps[:, None], 3, axis=1)
    assert compute_half_width(repeated, EQUAL, 0.95) == pytest.approx(half)


def test_seeds_alone_by_hand() -> None:
    gaps = np.array([1.0, 2.0, 6.0])
    half = stats.t.ppf(0.975, 2) * gaps.std(ddof=1) / 3**0.5
    repeated = np.repeat(gaps[None], 4, axis=0)
    assert compute_half_width(repeated, EQUAL, 0.95) == pytest.approx(half)


def test_both_parts_add_by_their_squares() -> None:
    of_class, of_seed = np.array([1.0, 2.0, 4.0, 5.0]), np.array([0.0, 3.0, 3.0])
    gaps = of_class[:, None] + of_seed
    halves = [
        compute_half_width(np.broadcast_to(part, gaps.shape), EQUAL, 0.95)
        for part in (of_class[:, None], of_seed)
    ]
    assert compute_half_width(gaps, EQUAL, 0.95) == pytest.approx(np.hypot(*halves))


def test_a_class_cut_in_two_counts_more_than_once_by_its_queries() -> None:
    """A class with most queries decides the mean, so few classes are left to bound it."""
    gaps = np.random.default_rng(0).normal(size=(4, 3))
    dominated = compute_half_width(gaps, np.array([100.0, 1.0, 1.0, 1.0]), 0.95)
    assert dominated > 10 * compute_half_width(gaps, EQUAL, 0.95)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1)])
def test_one_class_or_one_seed_bounds_nothing(shape: tuple[int, int]) -> None:
    gaps = np.random.default_rng(0).normal(size=shape)
    assert compute_half_width(gaps, np.full(shape[0], 7.0), 0.95) == np.inf


def test_a_verdict_follows_from_the_interval_over_classes() -> None:
    rng = np.random.default_rng(3)
    gaps = {"a": 0.5 + rng.normal(size=(20, 4)), "b": 5 + rng.normal(size=(20, 4))}
    sample = Sample(
        dict.fromkeys(range(4), 0.0),
        {name: dict(enumerate(table.mean(0))) for name, table in gaps.items()},
        others=1,
    )
    queries = np.full(20, 3.0)
    judged = judge(OverClasses(gaps, queries), sample, smallest=0.1)
    for name, table in gaps.items():
        interval, half = judged[name].interval, compute_half_width(table, queries, 0.95 ** (1 / 3))
        assert interval is not None and interval.low is not None
        assert interval.mean - interval.low == pytest.approx(half)
    assert judged["b"].call == "better"


@pytest.mark.parametrize("sizes", ["equal", "log-normal"])
def test_the_simulation_computes_what_a_report_computes(sizes: str) -> None:
    setting = Setting(10, 4, 1.0, 0.3, sizes=sizes, m=2)
    differences, queries = simulated.draw_tables(setting, 5)
    halves = simulated.compute_half_widths(differences, queries, 0.95)
    for table, sides, counts in zip(halves, differences, queries, strict=True):
        expected = [compute_half_width(side, counts, 0.95) for side in sides]
        assert table == pytest.approx(expected)


@pytest.mark.parametrize(
    ("classes", "seeds", "m", "tables"), [(5, 4, 5, 1000), (20, 2, 5, 1000), (100, 4, 1, 500)]
)
def test_few_verdicts_over_classes_are_false(classes: int, seeds: int, m: int, tables: int) -> None:
    limit = 100 * stats.binom.ppf(0.9999, tables, 0.05) / tables
    settings = simulated.list_settings(classes, seeds, m)
    shares = [simulated.measure(setting, tables) for setting in settings]
    assert max(share for share, _, _ in shares) < limit


def test_seeds_alone_bound_no_claim_about_classes() -> None:
    over_classes, _, over_seeds = simulated.measure(Setting(20, 8, 1.0, 0.0), 500)
    assert over_classes < 8 and over_seeds > 30


def test_few_verdicts_over_a_thousand_classes_are_false() -> None:
    for parts in simulated.PARTS:
        assert simulated.measure(Setting(1000, 4, *parts), 200)[0] < 11


def test_four_seeds_see_a_gain_of_half_a_classs_scatter() -> None:
    assert simulated.measure(Setting(100, 4, 1.0, 0.1), 500, size=0.5)[0] > 90


@pytest.mark.parametrize(("class_sd", "seed_sd"), [(1.0, 0.1), (0.2, 0.5)])
def test_more_seeds_of_the_same_classes_give_half_widths_as_drawn(
    class_sd: float, seed_sd: float
) -> None:
    rng, reached, tables, queries = np.random.default_rng(3), 0, 200, np.full(40, 5.0)
    for _ in range(tables):
        of_class = class_sd * rng.normal(size=(40, 1))
        pilot, more = (
            of_class + seed_sd * rng.normal(size=(1, n)) + 0.3 * rng.normal(size=(40, n))
            for n in (4, 12)
        )
        variances = estimate_class_variances(pilot, queries)
        assert variances is not None
        half = compute_half_width(more, queries, 0.95)
        reached += half <= np.quantile(variances.draw_half_widths(12, 0.95), 0.85)
        assert np.median(variances.draw_half_widths(0, 0.95)) <= variances.compute_half_width(0.95)
    assert reached / tables >= 0.8
