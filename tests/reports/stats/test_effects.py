"""Intervals, tests and effect sizes: against SciPy, statsmodels and loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from reports.stats.attainable import can_reach_verdict, pairs_needed
from reports.stats.describe import bootstrap_interval, reality_check_interval, t_interval
from reports.stats.effect_size import (
    Improvement,
    cliffs_delta,
    cohens_dz,
    probability_of_improvement,
    vargha_delaney_a,
)
from reports.stats.paired import holm, least_p, permutation_p, wilcoxon_p

NUMBERS = st.lists(st.integers(-40, 40), min_size=1, max_size=7)


# --- Intervals


@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize("n", [3, 5, 12])
def test_bootstrap_is_scipy_s_draw_for_draw(method: Any, n: int) -> None:
    x = np.random.default_rng(n).gamma(2.0, 1.0, n)
    oracle = scipy_stats.bootstrap(
        (x,), np.mean, method=method, n_resamples=2000, rng=np.random.default_rng(5)
    ).confidence_interval
    found = bootstrap_interval(list(x), method=method, seed=5, resamples=2000)
    assert found == pytest.approx((oracle.low, oracle.high), rel=1e-12)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_bootstrap_at_its_edges(method: Any) -> None:
    assert bootstrap_interval([1.0], method=method) is None
    assert bootstrap_interval([2.0, math.nan], method=method) is None
    assert bootstrap_interval([2.0, 2.0, 2.0], method=method) == (2.0, 2.0)
    assert bootstrap_interval([1.0, math.nan, 3.0], method=method) == (
        bootstrap_interval([1.0, 3.0], method=method)
    )


def test_a_bootstrap_of_five_covers_too_little() -> None:
    """So that the docstring's 83 % stays true."""
    rng = np.random.default_rng(0)
    ends = [bootstrap_interval(list(rng.normal(size=5)), resamples=500) for _ in range(1500)]
    covered = [low < 0 < high for low, high in filter(None, ends)]
    assert np.mean(covered) == pytest.approx(0.83, abs=0.03)


def test_reality_check_interval_is_student_s() -> None:
    x = [0.610, 0.622, 0.615, 0.631, 0.609, 0.618, 0.622, 0.617, 0.611, 0.626]
    low, high = scipy_stats.t.interval(0.95, 9, np.mean(x), scipy_stats.sem(x))
    assert reality_check_interval(x) == pytest.approx((np.mean(x), (high - low) / 2), rel=1e-12)
    half = 2.262157162740992 * np.std(x, ddof=1) / math.sqrt(10)
    assert reality_check_interval([*x, math.nan]) == pytest.approx((np.mean(x), half))
    assert reality_check_interval([0.5]) is None
    assert t_interval(x) == pytest.approx((low, high), rel=1e-12)


# --- Tests


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_is_statsmodels(p: list[float]) -> None:
    assert holm(list(p)) == pytest.approx(list(multipletests(p, method="holm")[1]))


def test_least_p_is_reached_by_differences_of_one_sign() -> None:
    for n in range(2, 9):
        d = [0.01 * (i + 1) for i in range(n)]
        assert permutation_p(d) == least_p(n)
        assert wilcoxon_p(d) == pytest.approx(least_p(n))
    assert least_p(1) is None
    assert pairs_needed(1) == 6  # 2/32 = 0.0625, 2/64 = 0.03125
    assert pairs_needed(7) == 9  # 7 · 2/256 = 0.0547, 7 · 2/512 = 0.0273
    for comparisons, least in ((1, 6), (7, 9)):
        assert can_reach_verdict(least, comparisons)
        assert not can_reach_verdict(least - 1, comparisons)


# --- Effect sizes


def test_cohen_s_dz() -> None:
    d = [0.01, 0.03, 0.02, -0.01, 0.04]
    t = scipy_stats.ttest_1samp(d, 0).statistic
    assert cohens_dz(d) == pytest.approx(t / math.sqrt(5), rel=1e-12)
    assert cohens_dz([0.1]) is None and cohens_dz([0.1, math.nan]) is None
    assert cohens_dz([0.61 - 0.60, 0.62 - 0.61, 0.63 - 0.62]) is None  # alike but rounding


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS)
def test_cliff_and_vargha_delaney_are_the_loops(a: list[int], b: list[int]) -> None:
    wins = sum(x > y for x in a for y in b)
    ties = sum(x == y for x in a for y in b)
    losses = sum(x < y for x in a for y in b)
    size = len(a) * len(b)
    assert cliffs_delta(a, b) == pytest.approx((wins - losses) / size)
    found = vargha_delaney_a(a, b)
    assert found == pytest.approx((wins + ties / 2) / size)
    assert found == pytest.approx(scipy_stats.mannwhitneyu(a, b).statistic / size)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS, st.integers(-5, 5), st.sampled_from([0.5, 1.0, 4.0]))
def test_effect_sizes_do_not_depend_on_units(
    a: list[int], b: list[int], shift: int, factor: float
) -> None:
    def moved(values: list[int]) -> list[float]:
        return [factor * v + shift for v in values]

    assert cliffs_delta(moved(a), moved(b)) == cliffs_delta(a, b)
    assert cliffs_delta(b, a) == pytest.approx(-(cliffs_delta(a, b) or 0.0))
    d, scaled = cohens_dz(a), cohens_dz([factor * v for v in a])
    assert scaled == (None if d is None else pytest.approx(d))


def test_probability_of_improvement() -> None:
    a, b = [0.61, 0.64, 0.66, 0.60, 0.70], [0.60, 0.60, 0.61, 0.61, 0.64]
    found = probability_of_improvement(a, b)
    assert found is not None and found.low is not None and found.high is not None
    assert found.probability == pytest.approx(vargha_delaney_a(a, b))
    assert 0 <= found.low < found.probability < found.high <= 1
    rng, drawn = np.random.default_rng(1), []
    for _ in range(4000):  # the definition: draw runs again on either side, count again
        x, y = rng.choice(a, 5), rng.choice(b, 5)
        drawn.append(np.mean([(p > q) + (p == q) / 2 for p in x for q in y]))
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.03)
    assert probability_of_improvement(a, b, seed=3) == probability_of_improvement(a, b, seed=3)


def test_probability_of_improvement_over_tasks_is_their_mean() -> None:
    a = {"cub": [0.6, 0.7], "cars": [0.5, 0.4, 0.9], "sop": [1.0]}
    b = {"cub": [0.5, 0.65], "cars": [0.6, 0.3], "in-shop": [0.2], "sop": [math.nan]}
    found = probability_of_improvement(a, b)
    assert found is not None and (found.tasks, found.n) == (2, 2)
    assert found.probability == pytest.approx((3 / 4 + 4 / 6) / 2)
    one = probability_of_improvement([0.6], [0.5, 0.7])
    assert one == Improvement(0.5, None, None, 1, 1)
    assert probability_of_improvement([math.nan], [0.5]) is None
