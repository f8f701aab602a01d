"""The range of seeds that is printed beside an open verdict holds the number that it takes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from reports.stats.blocks import dunnett_quantile
from reports.stats.comparison_rule import Sample, load_rule
from reports.stats.power import estimate_seed_range


@pytest.mark.parametrize("needed", [20, 60])
@pytest.mark.parametrize(
    ("rule", "rows", "least", "most"),
    [
        ("dunnett_and_t", 1, 0.92, 0.98),
        ("dunnett_and_t", 4, 0.95, 1.0),
        ("holm_t", 4, 0.93, 0.99),
        ("pooled_or_holm", 1, 0.92, 0.98),
        ("pooled_or_holm", 4, 0.95, 1.0),
        ("pooled_or_holm", 10, 0.95, 1.0),
    ],
)
def test_the_range_of_seeds_holds_the_number_in_95_percent(
    rule: str, rows: int, least: float, most: float, needed: int
) -> None:
    """Intervals that rules give five seeds, beside those of `needed` seeds and the true scatter."""
    quantile = float(stats.t.ppf(1 - 0.05 / rows / 2, needed - 1))
    if rule == "dunnett_and_t":
        quantile = max(stats.t.ppf(0.975, needed - 1), dunnett_quantile(rows, rows * (needed - 1)))
    wanted = quantile * np.sqrt(2 / needed) * 1.0001
    rng, hits, tables = np.random.default_rng(needed), 0, 300
    for _ in range(tables):
        base, *others = (dict(enumerate(map(float, rng.normal(size=5)))) for _ in range(rows + 1))
        sample = Sample(base, {str(i): row for i, row in enumerate(others)})
        half_width = load_rule(rule).compute_half_widths(sample)["0"][0]
        low, high = estimate_seed_range(half_width, 5, rows, wanted)
        hits += low <= needed <= high
    assert least <= hits / tables <= most


def test_the_range_narrows_with_the_seeds_that_estimate_it() -> None:
    ratios = []
    for n in (5, 10, 20, 40):
        half_width = float(stats.t.ppf(0.975, n - 1)) * np.sqrt(2 / n)  # at the true scatter
        low, high = estimate_seed_range(half_width, n, 1, 0.1)
        assert n <= low < 770 < high  # 1.96² · 2 / 0.1²
        ratios.append(high / low)
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] < 3
    assert estimate_seed_range(0.5, 20, 1, 0.49)[0] == 20, "no fewer seeds than there are"
