"""Intervals over several searches: by hand, at their limits, and as often wrong as they may be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reports.stats.comparison_rule import judge, load_rule
from reports.stats.wider_claims import OverSearches, average_searches, find_originals_of
from tests.reports.stats import simulate_searches as simulated
from tests.reports.stats.simulate import build_sample
from tests.reports.stats.simulate_searches import Setting

RULE = load_rule("pooled_or_holm")


def compute_reach(values: np.ndarray) -> dict[str, tuple[float, float]]:
    """The half widths of a table of values by search, row and split."""
    over = OverSearches(RULE, [*map(build_sample, values)])
    return dict(over.compute_half_widths(build_sample(values.mean(axis=0))))


def test_one_row_by_hand() -> None:
    # differences +1, −1 between splits and 3, 5, 7 between searches; m = 1, where both parts are t
    base = np.zeros((3, 1, 2))
    row = np.array([[[4.0, 2.0]], [[6.0, 4.0]], [[8.0, 6.0]]])
    values = np.concatenate([base, row], axis=1)
    splits = stats.t.ppf(0.975, 1) * np.sqrt(2) / np.sqrt(2)
    searches = stats.t.ppf(0.975, 2) * 2 / np.sqrt(3)
    expected = np.hypot(splits, searches)
    assert compute_reach(values)["1"] == pytest.approx((expected, expected))
    assert OverSearches(RULE, [*map(build_sample, values)]).compute_sd("1") == pytest.approx(2)


def test_equal_searches_change_no_interval() -> None:
    table = np.random.default_rng(1).normal(size=(1, 4, 6))
    alone = RULE.compute_half_widths(build_sample(table[0]))
    reach = compute_reach(np.repeat(table, 3, axis=0))
    assert all(reach[name] == pytest.approx(alone[name], rel=1e-9) for name in alone)


def test_a_shift_of_a_whole_search_is_no_scatter_of_differences() -> None:
    values = simulated.draw_tables(Setting(3, 5, 3, 1.0), 1)[0]
    shifted = values + np.array([0.0, 10.0, -5.0])[:, None, None]
    before, after = compute_reach(values), compute_reach(shifted)
    assert all(after[name] == pytest.approx(before[name]) for name in before)


def test_the_simulation_computes_what_the_rule_does() -> None:
    for setting in (Setting(1, 5, 2, 0.5), Setting(4, 6, 3, 2.0, 5)):
        values = simulated.draw_tables(setting, 3)
        for table, halves in zip(values, simulated.compute_half_widths(values), strict=True):
            assert [ends[0] for ends in compute_reach(table).values()] == pytest.approx([*halves])


@pytest.mark.parametrize("searches", [2, 3, 5])
@pytest.mark.parametrize(("m", "wild"), [(1, 1), (5, 1), (5, 10), (5, -3), (5, -10)])
def test_few_verdicts_are_false_however_searches_scatter(
    searches: int, m: int, wild: float
) -> None:
    for ratio in (0.0, 0.5, 4.0):
        setting = Setting(m, 5, searches, ratio, wild)
        assert simulated.measure(setting, 3000) < 6.2  # 5 %, and three standard errors
    # what it is for: without the searches' scatter most tables have a false verdict
    assert simulated.measure(Setting(m, 5, searches, 4.0, wild), 3000, widen=False) > 50


def test_a_row_is_a_copy_only_if_it_is_one_in_every_search() -> None:
    base, step = np.linspace(0.4, 0.5, 5), np.array([0.02, -0.02])[:, None]
    rows = [np.stack([base, base]), base + step, np.stack([base, base])]
    samples = [build_sample(np.stack([row[k] for row in rows])) for k in (0, 1)]
    means = average_searches([{"": s.baseline, **s.rows} for s in samples])
    sample = build_sample(np.array([[*row.values()] for row in means.values()]))
    over = OverSearches(RULE, samples)
    judged = judge(
        over, sample, smallest=0.003, originals=find_originals_of(over.searches, "", 0.001)
    )
    assert judged["1"].call == "open" and judged["2"].same_as == ""
    assert judge(RULE, sample, smallest=0.003, resolution=0.001)["1"].call is None  # by the means


def test_means_are_of_what_all_searches_have() -> None:
    searches = [{"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0}}, {"a": {1: 4.0, 2: 9.0}}]
    assert average_searches(searches) == {"a": {1: 3.0}, "b": {}}
