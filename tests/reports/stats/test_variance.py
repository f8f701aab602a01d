"""Variance components are unbiased, their limits and printed ranges hold what they should."""

from __future__ import annotations

import numpy as np
import pytest

from reports.stats.planning import Design, Family, draw_half_widths, estimate_components
from tests.reports.stats import simulate_designs
from tests.reports.stats.simulate_designs import Setting


def test_mean_squares_are_those_of_the_analysis_of_variance() -> None:
    values = np.random.default_rng(3).normal(size=(4, 5, 3))
    found = estimate_components(simulate_designs.to_runs(values))
    means = values.mean(axis=2)
    residuals = means - means.mean(0) - means.mean(1, keepdims=True) + means.mean()
    within = values - values.mean(0) - values.mean(2, keepdims=True) + values.mean((0, 2))[:, None]
    assert found is not None and (found.blocks, found.seeds) == (5, pytest.approx(3))
    assert (found.block_df, found.seed_df) == (3 * 4, 3 * 5 * 2)
    assert found.block_square == pytest.approx((residuals**2).sum() / 12)
    assert found.seed_square == pytest.approx((within**2).sum() / 30)


@pytest.mark.parametrize(
    "setting", [Setting(3, 5, 3, 0.0), Setting(3, 5, 3, 1.0), Setting(4, 5, 3, 0.5, failed=0.15)]
)
def test_components_are_unbiased_and_their_limits_hold(setting: Setting) -> None:
    found = simulate_designs.measure_components(setting, 300)
    assert abs(found["bias σ²_split"]) < 0.12 and abs(found["bias σ²_seed"]) < 0.06
    assert found["limits σ²_split"] >= 85 and found["limits σ²_seed"] >= 85


@pytest.mark.parametrize("split_sd", [0.0, 0.5, 2.0])
def test_the_printed_range_holds_the_half_width_that_is_reached(split_sd: float) -> None:
    assert simulate_designs.measure_range(Setting(3, 5, 4, split_sd), 150) >= 86


def test_a_table_without_splits_has_seeds_as_blocks() -> None:
    values = np.random.default_rng(3).normal(size=(4, 8, 1))
    found = estimate_components(simulate_designs.to_runs(values))
    assert found is not None and (found.block_df, found.seed_df) == (21, 0)
    halves = [np.median(draw_half_widths(found, Design(n), Family("holm_t", 3))) for n in (8, 32)]
    assert halves[1] < halves[0] / 2
    assert estimate_components(simulate_designs.to_runs(values[:, :1])) is None


@pytest.mark.parametrize("rows", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_seeds_by_precision_over_splits_give_few_false_verdicts(rows: int) -> None:
    found = simulate_designs.measure_precision(Setting(rows, 5, 2, 0.3), 250)
    assert found["false"] <= 9  # of 250 tables three standard errors above 5 %
    assert 2 < found["seeds"] < simulate_designs.MOST
