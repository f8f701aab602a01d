"""Statistics against SciPy, brute force and numbers worked by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from reports.stats.describe import Summary, bootstrap_interval, summary
from reports.stats.paired import Difference, holm, paired_difference, permutation_p, wilcoxon_p

A = {0: 0.61, 1: 0.64, 2: 0.66, 3: 0.60, 4: 0.70}
B = {0: 0.60, 1: 0.60, 2: 0.61, 3: 0.61, 4: 0.64}


def test_summary_by_hand() -> None:
    found = summary([1.0, 2.0, 3.0, 6.0])
    assert found is not None
    assert (found.mean, found.n) == (3.0, 4)
    assert found.sd == pytest.approx(math.sqrt(14 / 3))
    assert summary([2.0]) == Summary(2.0, None, 1)
    assert summary([]) is None
    assert summary([float("nan"), 5.0]) == Summary(5.0, None, 1)


def test_paired_interval_is_scipy_s() -> None:
    found = paired_difference(A, B)
    assert found is not None and found.method == "paired t"
    seeds = sorted(A)
    result = scipy_stats.ttest_rel([A[s] for s in seeds], [B[s] for s in seeds])
    interval = result.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert found.mean == pytest.approx(sum(A[s] - B[s] for s in seeds) / 5)


def test_pairs_are_matched_by_seed_not_by_place() -> None:
    found = paired_difference({5: 1.0, 0: 4.0, 9: 7.0}, {0: 1.0, 5: 0.5, 7: 9.0})
    assert found is not None and found.n == 2
    assert found.mean == pytest.approx((3.0 + 0.5) / 2)


def test_one_pair_gives_no_interval_and_says_so() -> None:
    assert paired_difference({0: 3.0}, {0: 1.0}) == Difference(
        2.0, None, None, 1, "n < 2: no interval"
    )
    assert paired_difference({0: 3.0}, {1: 1.0}) is None
    assert permutation_p([0.1]) is None and wilcoxon_p([0.1]) is None
    assert bootstrap_interval([0.1]) is None


def test_bootstrap_is_seeded_and_covers() -> None:
    values = np.random.default_rng(1).normal(3.0, 1.0, 40)
    found = bootstrap_interval(list(values), seed=7)
    assert found == bootstrap_interval(list(values), seed=7)
    assert found != bootstrap_interval(list(values), seed=8)
    oracle = scipy_stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert found == pytest.approx((oracle.low, oracle.high), abs=0.03)


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
    assert permutation_p(list(d), seed=1) == permutation_p(list(d), seed=1)


def test_wilcoxon_is_scipy_s() -> None:
    d = [0.01, 0.04, 0.05, -0.02, 0.06, 0.03]
    assert wilcoxon_p(d) == scipy_stats.wilcoxon(d).pvalue
    assert wilcoxon_p([0.0, 0.0]) is None


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.04, 0.30 × 4, 3, 2, 1 = 0.04, 0.06, 0.08, 0.30.
    assert holm([0.30, 0.01, None, 0.04, 0.02]) == pytest.approx([0.30, 0.04, None, 0.08, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]  # monotone and never above one
    assert holm([]) == []
