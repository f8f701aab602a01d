"""Ranks before and after promotion: the correlations, and a line a cell between its ranks."""

from __future__ import annotations

from typing import Any

import pytest
from scipy import stats as scipy_stats

from reports.errors import ReportError
from reports.figures.promotions import moves_of, promotions
from reports.recipe import Figure
from reports.stats.ranks import Correlation, kendall
from tests.reports.made import METRIC
from tests.reports.made_promoted import HIGH, LOW, RANKS, made

RECIPE = Figure(kind="promotions", studies=("network",), metric=METRIC)


def test_kendall_is_by_the_pairs_that_are_ordered_alike() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0, float("nan")], [1.0, 3.0, 2.0, 4.0, 0.0]
    assert kendall(a, b) == Correlation(pytest.approx(4 / 6), 4)  # 5 pairs alike, 1 not
    tied = [1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 2.0, 3.0]
    assert kendall(*tied) == Correlation(pytest.approx(4 / 5), 4)  # 4 alike, a tie on each side
    assert kendall([1.0, 2.0], [1.0, 2.0]) is None
    assert kendall([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


def test_ranks_are_those_of_the_promoted_cells() -> None:
    told = moves_of(made(), "network", METRIC)
    assert (told.source, told.by) == ("heads", METRIC)
    before = {f"{i:04d}": LOW[i] - 0.005 for i in RANKS}  # means of the seeds 0 and 1
    after = {f"{i:04d}": HIGH[i] for i in RANKS}
    assert {m.cell: m.before for m in told.moves} == pytest.approx(before)
    assert {m.cell: m.after for m in told.moves} == pytest.approx(after)
    assert {m.cell: (m.rank, m.became) for m in told.moves} == {
        "0001": (1, 3),
        "0003": (2, 2),
        "0002": (3, 1),
    }
    names = list(before)
    sides = [before[name] for name in names], [after[name] for name in names]
    assert told.rho is not None and told.tau is not None
    assert told.rho.value == pytest.approx(scipy_stats.spearmanr(*sides).statistic)
    assert told.tau.value == pytest.approx(scipy_stats.kendalltau(*sides).statistic)
    assert told.rho.value == pytest.approx(-1) and told.rho.n == 3


def test_a_source_that_is_to_be_small_ranks_the_other_way() -> None:
    found = made()
    found.document["studies"]["heads"]["objectives"] = [{"metric": METRIC, "direction": "minimize"}]
    told = moves_of(found, "network", METRIC)
    assert told.rho is not None and told.rho.value == pytest.approx(1)
    assert {m.cell: m.rank for m in told.moves} == {"0002": 1, "0003": 2, "0001": 3}


def test_a_line_a_cell_joins_its_ranks() -> None:
    drawn = promotions(made(neutral={"best_of": "baseline"}), RECIPE)
    panel = drawn.figure.axes[0]
    ends = sorted(tuple(line.get_ydata()) for line in panel.lines)
    assert ends == [(1, 3), (2, 2), (3, 1)]  # the neutral cell comes of none
    assert panel.get_title(loc="left") == "heads → network\nρ = −1.00, τ = −1.00, 3 cells"
    assert "0001  49.50" in [text.get_text() for text in panel.texts]
    assert len(drawn.spots) == 6
    assert "0001: rank 1 (49.50) → rank 3 (60.00)" in [spot.text for spot in drawn.spots]


def test_two_cells_have_no_correlation_and_none_no_lines() -> None:
    def two(i: int, seed: int) -> float | None:
        return None if i == 1 else HIGH[i]

    panel = promotions(made(two, seeds=1), RECIPE).figure.axes[0]
    assert "2 cells: no correlation" in panel.get_title(loc="left") and len(panel.lines) == 2
    empty = promotions(made(lambda i, seed: None), RECIPE)
    assert not empty.figure.axes[0].lines and empty.gaps


def test_a_study_that_promotes_nothing_is_refused() -> None:
    wrong: Any = RECIPE.model_copy(update={"studies": ("heads",)})
    with pytest.raises(ReportError, match="heads is a search study"):
        promotions(made(), wrong)
