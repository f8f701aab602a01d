"""Mean ranks and the critical difference, against the paper that describes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from reports.stats.nemenyi import ranking

# Ranks of four ways to run C4.5 on 14 data sets (Demšar 2006, Table 6).
RANKS = [
    *((4, 3, 2, 1), (1, 2, 3, 4), (4, 1, 2, 3), (4, 1, 3, 2), (4, 2, 3, 1), (1, 2.5, 4, 2.5)),
    *((3, 2, 4, 1), (2.5, 2.5, 4, 1), (4, 3, 2, 1), (2.5, 2.5, 2.5, 2.5), (4, 2.5, 1, 2.5)),
    *((3, 2, 4, 1), (4, 1, 2, 3), (3, 1, 4, 2)),
]


def test_the_paper_s_example() -> None:
    found = ranking(RANKS, lower_is_better=True)
    assert found is not None and found.blocks == 14
    assert found.ranks == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=5e-4)
    assert found.critical == pytest.approx(1.25, abs=5e-3)  # printed as 2.569 √(4·5 / (6·14))
    assert found.p == pytest.approx(scipy_stats.f.sf(3.69, 3, 39), rel=1e-2)  # F_F = 3.69
    assert [found.order[i] for i in range(4)] == [3, 1, 2, 0]


def test_bars_join_what_is_closer_than_the_critical_difference() -> None:
    apart = [[0.9, 0.5, 0.4, 0.1]] * 30  # all blocks rank alike
    found = ranking(apart)
    assert found is not None
    assert found.p == 0 and found.critical < 1 and found.groups == ()
    few = ranking(apart[:3])
    assert few is not None and 2 < few.critical < 3
    assert few.groups == ((0, 2), (1, 3))


def test_ranks_and_p_without_ties_are_scipy_s() -> None:
    values = np.random.default_rng(1).normal(size=(9, 5))
    found = ranking(values.tolist())
    assert found is not None
    chi = scipy_stats.friedmanchisquare(*values.T).statistic
    expected = scipy_stats.f.sf(8 * chi / (9 * 4 - chi), 4, 32)
    assert found.p == pytest.approx(expected, rel=1e-9)
    assert found.ranks == pytest.approx(scipy_stats.rankdata(-values, axis=1).mean(axis=0))


def test_too_few_blocks_have_no_ranking_and_gaps_are_refused() -> None:
    assert ranking([[0.1, 0.2]]) is None and ranking([]) is None
    with pytest.raises(ValueError, match="not finite"):
        ranking([[0.1, math.nan], [0.1, 0.2]])
    with pytest.raises(ValueError, match="different numbers"):
        ranking([[0.1, 0.2], [0.1]])
