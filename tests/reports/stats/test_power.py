"""Seeds that would settle a difference: against statsmodels, and against tests drawn at random."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from reports.stats.power import MOST, pairs_for_power, power


@pytest.mark.parametrize("size", [0.1, 0.5, -0.8, 1.5, 3.0])
@pytest.mark.parametrize("level", [0.05, 0.05 / 7])
def test_power_and_the_least_number_are_the_oracle_s(size: float, level: float) -> None:
    for n in (2, 5, 30, 200):
        theirs = TTestPower().power(abs(size), n, level, alternative="two-sided")
        if math.isfinite(theirs):
            assert power(size, n, level) == pytest.approx(theirs, abs=1e-9)
    least = pairs_for_power(size, level)
    assert least is not None
    assert power(size, least, level) >= 0.8
    assert least == 2 or power(size, least - 1, level) < 0.8


def test_power_is_how_often_a_drawn_test_rejects() -> None:
    drawn = np.random.default_rng(0).normal(0.9, 1.0, size=(20_000, 12))
    share = float((stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05).mean())
    assert power(0.9, 12) == pytest.approx(share, abs=4 * math.sqrt(0.25 / 20_000))


def test_no_number_is_told_where_none_follows() -> None:
    assert pairs_for_power(0.0) is None
    assert pairs_for_power(1e-4) is None
    assert pairs_for_power(1e3) == 2
    smallest = pairs_for_power(0.03)
    assert smallest is not None and 8_000 < smallest <= MOST
