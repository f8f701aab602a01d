"""How often verdicts are wrong where the worst runs fail, and where seeds are added after a look.

Short forms of `simulate_failures.py` and `simulate_looks.py`. Bounds lie three standard errors
above 5 %.
"""

from __future__ import annotations

import pytest

from tests.reports.stats import simulate_failures, simulate_looks

TABLES = 150
MOST = 5 + 3 * 1.8  # in %


@pytest.mark.parametrize("who", simulate_failures.WHO)
def test_failed_runs_seldom_give_a_false_verdict(who: str) -> None:
    wrong = simulate_failures.measure(who, rows=4, seeds=20, correlation=0.0, tables=TABLES)
    assert wrong["failed: worst"] <= MOST
    if who != "all":
        assert wrong["left out"] > MOST, "the case is harmless, and shows nothing"


def test_looks_that_add_seeds_seldom_give_a_false_verdict() -> None:
    always, single, six = (simulate_looks.measure(1, planned, 100) for planned in (None, 1, 6))
    most = 5 + 3 * 2.2
    assert always > most >= max(single, six)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("planned", [1, 3, 6])
def test_all_looks_together_keep_the_level(rows: int, planned: int) -> None:
    beyond = 0.5 if planned < len(simulate_looks.SEEDS) else 0.0
    assert simulate_looks.measure(rows, planned, 2000) <= 5 + beyond + 3 * 0.49


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize("rows", [1, 4, 10])
@pytest.mark.parametrize("who", simulate_failures.WHO)
def test_a_verdict_with_failed_runs_keeps_the_level(
    who: str, rows: int, correlation: float
) -> None:
    wrong = simulate_failures.measure(who, rows, 20, correlation, 1000)
    assert wrong["failed: worst"] <= 5 + 3 * 0.69
