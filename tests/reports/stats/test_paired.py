"""Intervals, paired tests, effect sizes, power and ranks: against SciPy, statsmodels and loops."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from reports.stats.describe import Summary, half_width, rank_methods, summarize, t_interval
from reports.stats.paired import (
    Difference,
    Improvement,
    adjust_by_holm,
    cliffs_delta,
    cohens_dz,
    compute_chances,
    paired_difference,
    permutation_p,
    probability_of_improvement,
)
from tests.reports.stats.simulate_chances import bin_chances, simulate

NUMBERS = st.lists(st.integers(-40, 40), min_size=1, max_size=7)
A = {0: 0.61, 1: 0.64, 2: 0.66, 3: 0.60, 4: 0.70}
B = {0: 0.60, 1: 0.60, 2: 0.61, 3: 0.61, 4: 0.64}
# Ranks of four ways to run C4.5 on 14 data sets (Demšar 2006, Table 6).
RANKS = [
    *((4, 3, 2, 1), (1, 2, 3, 4), (4, 1, 2, 3), (4, 1, 3, 2), (4, 2, 3, 1), (1, 2.5, 4, 2.5)),
    *((3, 2, 4, 1), (2.5, 2.5, 4, 1), (4, 3, 2, 1), (2.5, 2.5, 2.5, 2.5), (4, 2.5, 1, 2.5)),
    *((3, 2, 4, 1), (4, 1, 2, 3), (3, 1, 4, 2)),
]


def test_summary_by_hand() -> None:
    assert summarize([1.0, 2.0, 3.0, 6.0]) == Summary(3.0, pytest.approx(math.sqrt(14 / 3)), 4)
    assert summarize([2.0]) == Summary(2.0, None, 1)
    assert summarize([]) is None
    assert summarize([float("nan"), 5.0]) == Summary(5.0, None, 1)


def test_the_interval_of_a_mean_is_student_s() -> None:
    x = [0.610, 0.622, 0.615, 0.631, 0.609, 0.618, 0.622, 0.617, 0.611, 0.626]
    low, high = scipy_stats.t.interval(0.95, 9, np.mean(x), scipy_stats.sem(x))
    assert t_interval(x) == pytest.approx((low, high), rel=1e-12)
    half = 2.262157162740992 * np.std(x, ddof=1) / math.sqrt(10)
    assert half_width([*x, math.nan]) == pytest.approx(half)
    assert half_width([0.5]) is None


def test_paired_interval_is_scipy_s() -> None:
    found = paired_difference(A, B)
    assert found is not None and found.method == "paired t"
    result = scipy_stats.ttest_rel(list(A.values()), list(B.values()))
    interval = result.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert found.mean == pytest.approx(sum(A[s] - B[s] for s in A) / 5)


def test_pairs_are_matched_by_seed_not_by_place() -> None:
    found = paired_difference({5: 1.0, 0: 4.0, 9: 7.0}, {0: 1.0, 5: 0.5, 7: 9.0})
    assert found is not None and found.n == 2
    assert found.mean == pytest.approx((3.0 + 0.5) / 2)


def test_one_pair_gives_no_interval_and_no_test() -> None:
    alone = paired_difference({0: 3.0}, {0: 1.0})
    assert alone == Difference(2.0, None, None, 1, "n < 2: no interval")
    assert paired_difference({0: 3.0}, {1: 1.0}) is None
    assert permutation_p([0.1]) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-30, 30), min_size=2, max_size=8))
def test_permutation_is_the_enumeration(differences: list[int]) -> None:
    observed = abs(sum(differences))
    patterns = list(itertools.product([1, -1], repeat=len(differences)))
    hits = sum(
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) >= observed
        for signs in patterns
    )
    assert permutation_p([d / 64 for d in differences]) == pytest.approx(hits / len(patterns))


def test_permutation_of_many_pairs_agrees_with_scipy() -> None:
    d = np.random.default_rng(3).normal(0.3, 1.0, 30)
    oracle = scipy_stats.permutation_test(
        (d,),
        np.mean,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(0),
    ).pvalue
    assert permutation_p(list(d)) == pytest.approx(oracle, abs=0.02)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_is_statsmodels(p: list[float]) -> None:
    with mock.patch("gc.collect"):  # which multipletests calls: half a second in a large process
        expected = multipletests(p, method="holm")[1]
    assert adjust_by_holm(list(p)) == pytest.approx(list(expected))


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.04, 0.30 × 4, 3, 2, 1 = 0.04, 0.06, 0.08, 0.30.
    assert adjust_by_holm([0.30, 0.01, None, 0.04, 0.02]) == pytest.approx(
        [0.30, 0.04, None, 0.08, 0.06]
    )
    assert adjust_by_holm([0.9, 0.8]) == [1.0, 1.0]  # monotone and never above one
    assert adjust_by_holm([]) == []


def test_least_p_is_reached_by_differences_of_one_sign() -> None:
    for n in range(2, 9):
        d = [0.01 * (i + 1) for i in range(n)]
        assert permutation_p(d) == 2 / 2**n


def test_cohen_s_dz() -> None:
    d = [0.01, 0.03, 0.02, -0.01, 0.04]
    t = scipy_stats.ttest_1samp(d, 0).statistic
    assert cohens_dz(d) == pytest.approx(t / math.sqrt(5), rel=1e-12)
    assert cohens_dz([0.1]) is None and cohens_dz([0.1, math.nan]) is None
    assert cohens_dz([0.61 - 0.60, 0.62 - 0.61, 0.63 - 0.62]) is None  # alike but rounding


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS)
def test_cliff_s_delta_and_the_chance_to_win_are_the_loops(a: list[int], b: list[int]) -> None:
    wins = sum(x > y for x in a for y in b)
    ties = sum(x == y for x in a for y in b)
    losses = sum(x < y for x in a for y in b)
    size = len(a) * len(b)
    assert cliffs_delta(a, b) == pytest.approx((wins - losses) / size)
    found = probability_of_improvement(a, b)
    assert found is not None and found.probability == pytest.approx((wins + ties / 2) / size)
    theirs = scipy_stats.mannwhitneyu(a, b).statistic
    assert found.probability == pytest.approx(theirs / size)


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


def test_the_interval_of_a_chance_to_win_is_the_bootstrap_s() -> None:
    a, b = list(A.values()), list(B.values())
    found = probability_of_improvement(a, b)
    assert found is not None and found.low is not None and found.high is not None
    assert 0 <= found.low < found.probability < found.high <= 1
    rng, drawn = np.random.default_rng(1), []
    for _ in range(4000):  # the definition: draw runs again on either side, count again
        x, y = rng.choice(a, 5), rng.choice(b, 5)
        drawn.append(np.mean([(p > q) + (p == q) / 2 for p in x for q in y]))
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.03)
    assert probability_of_improvement([0.6], [0.5, 0.7]) == Improvement(0.5, None, None)
    assert probability_of_improvement([math.nan], [0.5]) is None


def test_ranks_of_the_paper_s_example() -> None:
    found = rank_methods(RANKS, lower_is_better=True)
    assert found is not None and found.blocks == 14
    assert found.ranks == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    assert found.critical == pytest.approx(1.25, abs=5e-3)  # printed as 2.569 √(4·5 / (6·14))
    # F_F = 3.69 in the paper, which has no correction for ties; with it χ² is SciPy's
    chi = scipy_stats.friedmanchisquare(*np.array(RANKS).T).statistic
    assert chi > 9.28 and found.p == pytest.approx(
        scipy_stats.f.sf(13 * chi / (14 * 3 - chi), 3, 39), rel=1e-9
    )
    assert [found.order[i] for i in range(4)] == [3, 1, 2, 0]


def test_bars_join_what_is_closer_than_the_critical_difference() -> None:
    apart = [[0.9, 0.5, 0.4, 0.1]] * 30  # all blocks rank alike
    found, few = rank_methods(apart), rank_methods(apart[:3])
    assert found is not None and few is not None
    assert found.p == 0 and found.critical < 1 and found.groups == ()
    assert 2 < few.critical < 3 and few.groups == ((0, 2), (1, 3))
    assert rank_methods([[0.1, 0.2]]) is None and rank_methods([]) is None


def test_ranks_and_p_without_ties_are_scipy_s() -> None:
    values = np.random.default_rng(1).normal(size=(9, 5))
    found = rank_methods(values.tolist())
    assert found is not None
    chi = scipy_stats.friedmanchisquare(*values.T).statistic
    expected = scipy_stats.f.sf(8 * chi / (9 * 4 - chi), 4, 32)
    assert found.p == pytest.approx(expected, rel=1e-9)
    assert found.ranks == pytest.approx(scipy_stats.rankdata(-values, axis=1).mean(axis=0))


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_chances_are_those_of_the_t_distribution(lower_is_better: bool) -> None:
    found = compute_chances(0.2, 0.1, 4, 0.3, lower_is_better=lower_is_better)
    low, high = (scipy_stats.t.cdf(x, 4, loc=0.2, scale=0.1) for x in (-0.3, 0.3))
    sides = (1 - high, low) if lower_is_better else (low, 1 - high)
    assert found == pytest.approx((sides[0], high - low, sides[1]))
    assert compute_chances(0.2, 0.0, 4, 0.3) is None and compute_chances(0.2, 0.1, 0, 0.3) is None


@pytest.mark.parametrize("blocks", [3, 8])
def test_a_row_at_the_limit_is_said_to_be_beyond_it_as_often_as_the_chance_allows(
    blocks: int,
) -> None:
    """The chance of being worse than −δ is then even between 0 and 1, whatever the blocks."""
    chances, _ = simulate(blocks, 8_000, (-1.0, -1.0))
    assert scipy_stats.kstest(chances[:, 0], "uniform").pvalue > 1e-3


def test_chances_come_true_as_often_as_they_say() -> None:
    chances, events = simulate(10, 12_000)
    for k in range(3):
        for chance, share, count in bin_chances(chances[:, k], events[:, k]):
            assert abs(chance - share) < 0.03 + 3 * (chance * (1 - chance) / count) ** 0.5


def test_many_runs_have_normal_distributions_close_to_resampling() -> None:
    """At 200 runs both ways are near each other, so that nothing jumps at the change."""
    rng = np.random.default_rng(4)
    a, b = rng.normal(0.2, 1, 200), rng.normal(0, 1.5, 200)
    more = [*a, float(np.median(a))]  # one run above the limit
    few, many = (probability_of_improvement(side, b.tolist()) for side in (a.tolist(), more))
    assert few is not None and few.low is not None and few.high is not None
    assert many is not None and many.low is not None and many.high is not None
    assert many.probability == pytest.approx(few.probability, abs=0.002)
    assert (many.low, many.high) == pytest.approx((few.low, few.high), abs=0.01)
    wins = [(x > y) + 0.5 * (x == y) for x in more for y in b]
    assert many.probability == pytest.approx(float(np.mean(wins)), abs=1e-12)
    gaps = (a - b).tolist()
    sampled, normal = permutation_p(gaps), permutation_p([*gaps, float(np.mean(gaps))])
    assert sampled is not None and normal == pytest.approx(sampled, abs=0.02)
    assert permutation_p([0.0] * 300) == 1.0
